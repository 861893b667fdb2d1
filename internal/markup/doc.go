// Package markup turns the Markdown that models write into what a messaging platform shows: a customer must not read asterisks and
// brackets that nothing on their screen explains. Texts without Markdown stay as they are, to the byte.
package markup
