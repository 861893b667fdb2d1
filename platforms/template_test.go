package platforms

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVariablesIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                                nil,
		"Hello":                           nil,
		"Hello {{1}}, {{2}} and {{1}}":    {"1", "2"},
		"{{10}} {{2}} {{1}}":              {"1", "2", "10"},
		"{{ order }} for {{first_name}}.": {"order", "first_name"},
		"{{}} {{a b}} {1} {{ä}}":          nil,
	} {
		require.Equal(t, want, VariablesIn(text), text)
	}
}

func TestFillTemplate(t *testing.T) {
	t.Parallel()
	template := Template{Name: "ready", Language: "en", Body: "Dear {{1}}, order {{2}} is ready, {{1}}. {{ 2 }}", Variables: []string{"1", "2"}}
	filled, text, err := template.Fill(map[string]string{"2": "{{1}}", "1": "Lan"})
	require.NoError(t, err)
	require.Equal(t, "Dear Lan, order {{1}} is ready, Lan. {{1}}", text, "a value is no place for another")
	require.Equal(t, FilledTemplate{Name: "ready", Language: "en", Variables: []TemplateVariable{{"1", "Lan"}, {"2", "{{1}}"}}}, filled)
	for _, c := range []struct {
		values map[string]string
		field  string
	}{
		{nil, "1"},
		{map[string]string{"1": "Lan"}, "2"},
		{map[string]string{"1": "Lan", "2": " "}, "2"},
		{map[string]string{"1": "L\nan", "2": "7"}, "1"},
		{map[string]string{"1": strings.Repeat("é", MaxTemplateValue+1), "2": "7"}, "1"},
		{map[string]string{"1": "Lan", "2": "7", "3": "8"}, ""},
	} {
		_, _, err := template.Fill(c.values)
		var fault *FieldError
		require.ErrorAs(t, err, &fault)
		require.Equal(t, c.field, fault.Field)
	}
	_, text, err = (&Template{Name: "plain", Language: "en", Body: "Hello"}).Fill(nil)
	require.NoError(t, err)
	require.Equal(t, "Hello", text)
}

func TestFillIn(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Dear Lan, order {{2}}. {{1}}", FillIn("Dear {{1}}, order {{2}}. {{ 3 }}", map[string]string{"1": "Lan", "3": "{{1}}"}))
}

func TestCheckTemplatePage(t *testing.T) {
	t.Parallel()
	good := Template{Name: "n", Language: "en", Body: "Hello {{1}}", Variables: []string{"1"}}
	require.NoError(t, CheckTemplatePage(&TemplatePage{Templates: []Template{good}, Next: "QVFI=="}))
	require.Error(t, CheckTemplatePage(&TemplatePage{Next: "a b"}))
	require.Error(t, CheckTemplatePage(&TemplatePage{Next: strings.Repeat("a", MaxID+1)}))
	require.Error(t, CheckTemplatePage(&TemplatePage{Templates: make([]Template, MaxTemplates+1)}))
	for _, spoil := range []func(*Template){
		func(t *Template) { t.Name = "" },
		func(t *Template) { t.Language = "\xff" },
		func(t *Template) { t.Body = " " },
		func(t *Template) { t.Body += strings.Repeat("x", MaxTemplateBody) },
		func(t *Template) { t.Variables = nil },
		func(t *Template) { t.Needs = "\x00" },
	} {
		bad := good
		spoil(&bad)
		require.Error(t, CheckTemplatePage(&TemplatePage{Templates: []Template{bad}}))
	}
}
