// Package markup turns the Markdown that models write into what a messaging platform shows, so that customers don't read asterisks and
// brackets. Texts without Markdown stay the same, byte for byte. It knows no platform: [platforms.Markup] says what one shows.
package markup
