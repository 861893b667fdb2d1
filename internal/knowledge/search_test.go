package knowledge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// corpus are documents of a shop, in the two languages its customers write.
var corpus = map[string]string{
	"doi-tra":  "Chính sách đổi trả: khách hàng được đổi trả giày trong vòng 30 ngày nếu còn nguyên hộp.",
	"giao":     "Giao hàng tại Hà Nội trong 2 giờ. Các tỉnh khác 3 đến 5 ngày.",
	"cua-hang": "Cửa hàng ở 12 phố Tràng Tiền, Hà Nội, mở cửa từ 8 giờ đến 22 giờ.",
	"dong":     "Giá tính bằng đồng Việt Nam. Chúng tôi nhận thẻ và chuyển khoản.",
	"returns":  "Returns: shoes may be returned within 30 days if they are in their box.",
	"delivery": "Delivery inside the city takes two hours, elsewhere three to five days.",
	"care":     "Leather shoes should be cleaned with a soft brush and never with water.",
	"ma":       "Con ma trong phim kinh dị.",
	"mẹ":       "Má tôi bán hoa ở chợ.",
	"退款":       "如果商品有问题,我们七天内退款。",
}

func fill(t *testing.T, l *Library) {
	t.Helper()
	for _, name := range []string{"doi-tra", "giao", "cua-hang", "dong", "returns", "delivery", "care", "ma", "mẹ", "退款"} {
		require.Equal(t, store.DocumentReady, add(t, l, acme, shop, name, PlainText, corpus[name]).State)
	}
	add(t, l, acme, staff, "wages", PlainText, "Wages are paid on the last day; the code of the safe is tulip.")
	add(t, l, other, alien, "secret", PlainText, "Hà Nội giày shoes returned: the rival's plans, giao hàng đổi trả.")
}

// names are the documents a search answers, best first.
func names(t *testing.T, l *Library, bases []string, query string, n int) (found []string) {
	t.Helper()
	snippets, err := l.Search(t.Context(), acme, bases, query, n)
	require.NoError(t, err)
	for i, s := range snippets {
		require.Positive(t, s.Score)
		require.NotEmpty(t, s.Text)
		require.NotEmpty(t, s.DocumentID)
		if i > 0 {
			require.LessOrEqual(t, s.Score, snippets[i-1].Score)
		}
		found = append(found, s.Document)
	}
	return found
}

func TestSearch(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		fill(t, l)
		for query, want := range map[string][]string{
			"ha noi":                         {"giao", "cua-hang"},
			"Hà Nội":                         {"giao", "cua-hang"},
			"HÀ NỘI?!":                       {"giao", "cua-hang"},
			"Ha\u0300 No\u0323\u0302i":       {"giao", "cua-hang"}, // apart
			"dong viet nam":                  {"dong"},
			"đồng":                           {"dong"},
			"tôi muốn đổi trả giày":          {"doi-tra"},
			"can I return my leather shoes":  {"care", "returns"},
			"how long does delivery take":    {"delivery"},
			"má":                             {"mẹ", "ma"}, // with its accents first
			"退款":                             {"退款"},
			"商品":                             {"退款"},
			"tulip":                          nil, // of a base that is not searched
			"xyzzy":                          nil,
			"rival":                          nil, // another organization's
			"":                               nil,
			"?! \x00 \xff \" ' * ( ) -- ;":   nil,
			`"ha noi" NEAR(giao, 2)`:         {"giao"},
			`words:giao OR chunk_words:{*}`:  {"giao"},
			`giao' | 'hang`:                  {"giao"},
			strings.Repeat("giao ", 100_000): {"giao"},
		} {
			found := names(t, l, []string{shop}, query, 10)
			if want == nil {
				require.Empty(t, found, "%.50q", query)
				continue
			}
			require.GreaterOrEqual(t, len(found), len(want), "%.50q found %v", query, found)
			require.Equal(t, want, found[:len(want)], "%.50q", query)
			require.NotContains(t, found, "secret")
		}
		require.Equal(t, []string{"giao"}, names(t, l, []string{shop}, "ha noi", 1))
		require.Empty(t, names(t, l, []string{shop}, "ha noi", 0))
		require.Empty(t, names(t, l, nil, "ha noi", 5))
		require.Empty(t, names(t, l, []string{alien}, "rival", 5), "a base of another organization")
		require.Equal(t, []string{"wages"}, names(t, l, []string{shop, staff, "kb_none"}, "tulip", 5))
		require.Equal(t, []string{"wages"}, names(t, l, []string{staff, staff}, "tulip", 5))
	})
}

// Both engines answer the same, in the same order, with the same scores.
func TestSearchIsTheSameOnBothEngines(t *testing.T) {
	t.Parallel()
	libraries := map[store.Engine]*Library{}
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		libraries[engine] = library(t, storetest.Open(t, engine))
		fill(t, libraries[engine])
	}
	for _, query := range []string{
		"giày", "giao hàng trong bao nhiêu ngày", "shoes", "days in the box", "hà nội 30 ngày", "và thẻ đồng", "trong", "ở", "退款 ok", "30",
	} {
		var answers [][]Snippet
		for _, l := range libraries {
			snippets, err := l.Search(t.Context(), acme, []string{shop, staff}, query, 10)
			require.NoError(t, err)
			for i := range snippets {
				snippets[i].DocumentID = ""
			}
			answers = append(answers, snippets)
		}
		require.NotEmpty(t, answers[0], query)
		require.Equal(t, answers[0], answers[1], query)
	}
}

// A word that is everywhere says nothing, unless nothing else is asked.
func TestCommonWords(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		var all strings.Builder
		for i := range commonChunks + 50 {
			fmt.Fprintf(&all, "# Item %d\n\nshop price of number n%d %s\n\n", i, i, strings.Repeat("filler ", 40))
		}
		document := add(t, l, acme, shop, "list", Markdown, all.String())
		require.Equal(t, store.DocumentReady, document.State)
		require.Greater(t, document.ChunksTotal, int64(commonChunks))
		add(t, l, acme, shop, "rare", PlainText, "The shop is closed on Tet.")

		snippets, err := l.Search(t.Context(), acme, []string{shop}, "is the shop closed?", 5)
		require.NoError(t, err)
		require.Equal(t, "rare", snippets[0].Document)
		require.Len(t, snippets, 1, "a common word finds nothing beside a rare one")

		snippets, err = l.Search(t.Context(), acme, []string{shop}, "price filler", 5)
		require.NoError(t, err)
		require.Len(t, snippets, 5, "all words are common")
		snippets, err = l.Search(t.Context(), acme, []string{shop}, "price of n77", 5)
		require.NoError(t, err)
		require.Contains(t, snippets[0].Text, "n77 ")
		require.Len(t, snippets, 1)
	})
}
