package dashboard

import (
	"encoding/json"
	"fmt"
	"html"
	"strconv"
	"strings"
)

// widgetTypeName is the API's name of the widget, the type without a platform.
const widgetTypeName = "widget"

// widgetSettings are the additional fields of a channel of the type widget.
type widgetSettings struct {
	Origins           []string    `json:"origins"`
	DailySpendMicros  string      `json:"dailySpendMicros"` // "" is a tenth of the wallet
	RequestsPerMinute json.Number `json:"requestsPerMinute"`
}

// fields returns the inputs of the settings.
func (s *widgetSettings) fields() []field {
	spend := ""
	if s.DailySpendMicros != "" {
		spend = credits(s.DailySpendMicros)
	}
	return []field{
		{
			Name: "origins", Kind: areaField, Label: "Allowed sites", Value: strings.Join(s.Origins, "\n"), Required: true, Rows: 4,
			Hint: "One address per line, without a path: https://shop.example.com, or https://*.example.com for all subdomains.",
		},
		{
			Name: "dailySpendMicros", Kind: numberField, Label: "Highest cost of its answers per day, in credits", Value: spend,
			Hint: "Anybody can visit your site; this bounds what visitors can cost you. Empty: a tenth of the wallet.",
		},
		{
			Name: "requestsPerMinute", Kind: numberField, Label: "Messages each minute", Value: s.RequestsPerMinute.String(),
			Hint: "Of all visitors together, 1 to 6,000. A new widget has 30.",
		},
	}
}

// addWidgetSettings adds the input to a body for the API.
func (req *pageRequest) addWidgetSettings(body object) error {
	body["origins"] = append([]string{}, strings.Fields(req.text("origins"))...)
	body["dailySpendMicros"] = nil
	if typed := strings.TrimSpace(req.text("dailySpendMicros")); typed != "" {
		micros, ok := microsOf(typed)
		if !ok {
			return refuseField("dailySpendMicros", "Enter an amount of credits, such as 2.50, or nothing.")
		}
		body["dailySpendMicros"] = micros
	}
	if number := req.number("requestsPerMinute"); number != nil {
		body["requestsPerMinute"] = number
	}
	return nil
}

// microsOf parses an amount as [credits] formats it, or written otherwise, in micros; ok is false for another text.
func microsOf(amount string) (micros string, ok bool) {
	const most, places = 12, 6 // digits before and behind the point
	whole, fraction, _ := strings.Cut(amount, ".")
	if whole == "" || len(whole) > most || len(fraction) > places {
		return "", false
	}
	digits := whole + fraction + strings.Repeat("0", places-len(fraction))
	if strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	return strconv.FormatInt(number, 10), err == nil
}

// widgetSnippet returns the line of HTML that shows the widget on a page.
func widgetSnippet(baseURL, channelID string) string {
	return fmt.Sprintf(`<script src="%s/widget/%s/widget.js" async></script>`, html.EscapeString(baseURL), channelID)
}
