// Package text is the message catalogue of the pages for people: texts, amounts, numbers and times in the reader's language.
//
// The English text is the key of a message. Templates write {{t "Save"}} and {{tf "%d calls" .Calls}}; Go code keeps texts as constants of the
// type [Text] and passes them to [Printer.T] or [Printer.Tf]. vi.json has the Vietnamese texts by their keys, en.json the English singulars of
// texts with a number, errors.json messages of the API in Vietnamese. A test fails if a text of a page has no Vietnamese, or if an entry belongs
// to no text.
//
// Words of the shop and words of the service collide in Vietnamese, so these terms are fixed:
//
//	answer (of a model)    câu trả lời         key (API key)          khoá (khoá API)
//	assistant              trợ lý              knowledge base         kho kiến thức
//	audit log              nhật ký thay đổi    member                 thành viên
//	balance                số dư               organization           tổ chức
//	call (of a model)      lượt gọi            operator               đơn vị vận hành
//	channel                kênh                platform               nền tảng
//	conversation           hội thoại           provider key           khoá nhà cung cấp
//	credit, credits        tín dụng            revoke                 thu hồi
//	customer               khách               take over              tiếp quản
//	draft                  bản nháp            template               tin nhắn mẫu
//	hand back              trả trợ lý          unassigned             chưa phân công ("chưa giao" is "not delivered")
//	("giao lại" is "deliver again")            wallet                 ví
//
// The package has no state except its catalogue, and names no page.
package text

import (
	"cmp"
	_ "embed" // the catalogue
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Text is a text of a page in English, which is the key of its translations. A constant of this type must have a Vietnamese entry.
type Text string

// Language is a language of the pages, as a tag such as "vi".
type Language string

// The languages of the pages.
const (
	English    Language = "en"
	Vietnamese Language = "vi"
)

// Languages returns the languages of the pages, the default first.
func Languages() []Language { return []Language{English, Vietnamese} }

// Name returns the language's own name.
func (l Language) Name() string {
	if l == Vietnamese {
		return "Tiếng Việt"
	}
	return "English"
}

var matcher = language.NewMatcher([]language.Tag{language.English, language.Vietnamese})

// Choose returns the chosen language, or the best one for a header Accept-Language if the choice is empty or unknown.
func Choose(chosen, acceptLanguage string) Language {
	_, at := language.MatchStrings(matcher, acceptLanguage)
	if slices.Contains(Languages(), Language(chosen)) {
		return Language(chosen)
	}
	return Languages()[at]
}

//go:embed vi.json
var vietnamese []byte

//go:embed en.json
var singular []byte

//go:embed errors.json
var messages []byte

var (
	translations = read(&vietnamese)
	singulars    = read(&singular)
	refusals     = read(&messages)
)

// read returns a function that parses a file of the binary on its first call: most processes never show a page.
func read(file *[]byte) func() map[Text]string {
	return sync.OnceValue(func() (texts map[Text]string) {
		if err := json.Unmarshal(*file, &texts); err != nil {
			panic("text: the catalogue: " + err.Error())
		}
		return texts
	})
}

// Printer writes texts and values in one language. It is safe for concurrent use.
type Printer struct {
	// Language is the printer's language, Currency the code of the currency of all amounts, empty for credits.
	Language Language
	Currency string

	numbers *message.Printer
	// symbol is the sign of the currency, empty without one. whole: the currency is usually written without decimals.
	symbol string
	whole  bool
	point  string
}

// New returns a printer. code is the ISO 4217 code of the currency of all amounts. Empty means that amounts are credits. It panics if there is
// no such currency; [ValidCurrency] checks it.
func New(l Language, code string) *Printer {
	tag := language.Make(string(l))
	p := &Printer{Language: l, Currency: code, numbers: message.NewPrinter(tag), point: "."}
	if l == Vietnamese {
		p.point = ","
	}
	if code != "" {
		unit := currency.MustParseISO(code)
		scale, _ := currency.Standard.Rounding(unit)
		p.symbol, p.whole = p.numbers.Sprint(currency.NarrowSymbol(unit)), scale == 0
	}
	return p
}

// ValidCurrency reports whether code is the code of a currency.
func ValidCurrency(code string) bool {
	_, err := currency.ParseISO(code)
	return err == nil
}

// T returns the text in the printer's language, or the key if there is no translation.
func (p *Printer) T(key Text) string {
	if p.Language == Vietnamese {
		return cmp.Or(translations()[key], string(key))
	}
	return string(key)
}

// Tf returns a text with arguments as in [fmt.Sprintf]. %d writes numbers as people do in the language. The first argument selects between
// singular and plural.
func (p *Printer) Tf(key Text, args ...any) string {
	return p.numbers.Sprintf(p.form(key, args), args...)
}

// form returns the translated text before its verbs are replaced.
func (p *Printer) form(key Text, args []any) string {
	if one := singulars()[key]; p.Language == English && one != "" && len(args) > 0 && fmt.Sprint(args[0]) == "1" {
		return one
	}
	return p.T(key)
}

// counted are the numbers of a message that are arguments: all, or all except 0.
var counted = []*regexp.Regexp{regexp.MustCompile(`[0-9]+`), regexp.MustCompile(`[1-9][0-9]*`)}

// Error returns the message of an error of an operation in the printer's language, or the message itself if errors.json doesn't have it. There
// the name of the error's field is "The value", and numbers are %d.
func (p *Printer) Error(field, message string) string {
	if p.Language != Vietnamese {
		return message
	}
	key := message
	if field != "" {
		key = strings.Replace(key, field+" ", "The value ", 1)
	}
	for _, pattern := range counted {
		var numbers []any
		general := pattern.ReplaceAllStringFunc(key, func(digits string) string {
			number, _ := strconv.ParseInt(digits, 10, 64)
			numbers = append(numbers, number)
			return "%d"
		})
		if known := refusals()[Text(general)]; known != "" {
			return p.numbers.Sprintf(known, numbers...)
		}
	}
	return cmp.Or(refusals()[Text(key)], p.T(Text(message)))
}

// markup is [Printer.Tf] for templates. With arguments that are HTML, such as links, the result is HTML, and everything else in it is escaped.
func (p *Printer) markup(key Text, args ...any) any {
	isHTML := false
	for i, arg := range args {
		switch arg := arg.(type) {
		case template.HTML:
			isHTML = true
		case *string:
			args[i] = ""
			if arg != nil {
				args[i] = *arg
			}
		}
	}
	if !isHTML {
		return p.Tf(key, args...)
	}
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	return template.HTML(p.numbers.Sprintf(template.HTMLEscapeString(p.form(key, args)), args...)) //nolint:gosec // G203: escaped above
}

// Number returns a number with the separators of the language.
func (p *Printer) Number(number int64) string { return p.numbers.Sprintf("%d", number) }

// The amounts of the API are millionths of the currency unit.
const (
	microDigits   = 6
	microsPerUnit = 1_000_000
)

// Amount returns an amount of micros with two decimals and the currency, such as "1.284.350 ₫". A rounded amount begins with ≈. An amount that
// would be rounded to zero has all its decimals. It returns other texts unchanged.
func (p *Printer) Amount(micros string) string { return p.amount(micros, 2) }

// Breakdown is [Printer.Amount] with four decimals, for parts of a charge.
func (p *Printer) Breakdown(micros string) string { return p.amount(micros, 4) }

// Decimal returns the number of [Printer.Amount] without the currency, for plots.
func (p *Printer) Decimal(micros int64) string {
	about, sign, number := p.decimal(micros, 2)
	return about + sign + number
}

func (p *Printer) amount(micros string, decimals int) string {
	amount, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return micros
	}
	about, sign, number := p.decimal(amount, decimals)
	switch {
	case p.symbol == "":
		return about + p.Tf("%s credits", sign+number)
	case p.Language == Vietnamese:
		return about + sign + number + "\u00a0" + p.symbol
	}
	return about + sign + p.symbol + number
}

// decimal returns an amount in units: a sign if it is rounded, its own sign, and its digits.
func (p *Printer) decimal(amount int64, decimals int) (about, sign, number string) {
	rest := uint64(amount)
	if amount < 0 {
		sign, rest = "-", -rest
	}
	step := uint64(1)
	for range microDigits - decimals {
		step *= 10
	}
	if rounded := (rest + step/2) / step * step; rounded != rest && rounded != 0 {
		rest, about = rounded, "≈\u00a0"
	}
	number = p.numbers.Sprintf("%d", rest/microsPerUnit)
	fraction := strings.TrimRight(fmt.Sprintf("%0*d", microDigits, rest%microsPerUnit), "0")
	if fraction != "" || !p.whole {
		number += p.point + fraction + strings.Repeat("0", max(0, 2-len(fraction)))
	}
	return about, sign, number
}

// Moment returns a time of the API (RFC 3339) with its zone, such as "21 Nov 2026, 10:05 UTC". It returns other texts unchanged.
func (p *Printer) Moment(moment string) string {
	at, err := time.Parse(time.RFC3339, moment)
	if err != nil {
		return moment
	}
	if p.Language == Vietnamese {
		return at.UTC().Format("15:04 02/01/2006 MST")
	}
	return at.UTC().Format("2 Jan 2006, 15:04 MST")
}

// Day returns a day such as "2026-11-21" as people write it. It returns other texts unchanged.
func (p *Printer) Day(day string) string {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return day
	}
	if p.Language == Vietnamese {
		return at.Format("02/01/2006")
	}
	return at.Format("2 Jan 2006")
}

// Functions returns the functions of templates:
//
//   - t and tf return texts. Arguments of tf that are HTML, from the functions below, stay HTML.
//   - number, amount, breakdown, day and moment format values; moment returns a time element, empty for an empty time.
//   - link returns a link to a path with a text, mark an element without attributes: {{tf "%s is yours." (mark "strong" .Name)}}.
//   - language and currency return their codes, for the attribute lang and for scripts.
func (p *Printer) Functions() template.FuncMap {
	return template.FuncMap{
		"t": p.T, "tf": p.markup, "number": p.Number, "amount": p.Amount, "breakdown": p.Breakdown, "day": p.Day,
		"language": func() Language { return p.Language },
		"currency": func() string { return p.Currency },
		"moment": func(moment any) template.HTML {
			at := fmt.Sprint(moment)
			if nullable, ok := moment.(*string); ok && nullable != nil {
				at = *nullable
			}
			if moment == (*string)(nil) || at == "" {
				return ""
			}
			return element("time", ` datetime="`+template.HTMLEscapeString(at)+`"`, p.Moment(at))
		},
		"mark": func(name string, content any) template.HTML { return element(name, "", content) },
		"link": func(path string, content any) template.HTML {
			if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "#") {
				panic("text: a link leaves the pages: " + path)
			}
			return element("a", ` href="`+template.HTMLEscapeString(path)+`"`, content)
		},
	}
}

// element returns an element with a content that is escaped, unless it is HTML.
func element(name, attributes string, content any) template.HTML {
	inner, ok := content.(template.HTML)
	if !ok {
		inner = template.HTML(template.HTMLEscapeString(fmt.Sprint(content))) //nolint:gosec // G203: escaped
	}
	return template.HTML("<"+name+attributes+">") + inner + template.HTML("</"+name+">") //nolint:gosec // G203: names of our templates
}
