package command_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestWalletCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	wallet := func(args ...string) map[string]any {
		return c.json(append([]string{"wallet"}, append(args, "--org", org)...)...)
	}
	require.Equal(t, map[string]any{"environment": "live", "balanceMicros": "0", "heldMicros": "0"}, wallet("show"))

	credit := wallet("credit", "--micros", "9007199254740993", "--ref", "invoice-17")
	require.Equal(t, "9007199254740993", credit["amountMicros"], "beyond what a float holds")
	require.Equal(t, "9007199254740993", credit["balanceMicros"])
	require.Equal(t, "credit", credit["kind"], "as in the API")
	require.Equal(t, "invoice-17", credit["reference"])
	require.Equal(t, false, credit["replayed"])
	again := wallet("credit", "--micros", "9007199254740993", "--ref", "invoice-17")
	require.Equal(t, true, again["replayed"], "idempotent by ref")
	require.Equal(t, credit["id"], again["id"])

	require.Equal(t, "7", wallet("credit", "--micros", "7", "--ref", "a", "--env", "test")["balanceMicros"], "test credits are apart")
	require.Equal(t, "14", wallet("credit", "--micros", "+7", "--ref", "b", "--env", "test")["balanceMicros"], "another payment")
	require.Equal(t, "4", wallet("adjust", "--micros", "-10", "--reason", "booked twice", "--ref", "c", "--env", "test")["balanceMicros"])
	require.Equal(t, true, wallet("adjust", "--micros", "-10", "--reason", "booked twice", "--ref", "c", "--env", "test")["replayed"], "a repeated command")
	require.Equal(t, "4", wallet("show", "--env", "test")["balanceMicros"])
	require.Equal(t, "9007199254740993", wallet("show")["balanceMicros"])
	for amount, micros := range map[string]string{"0.000001": "1", "12.5": "12500000", "3": "3000000", "0.10": "100000"} {
		require.Equal(t, micros, wallet("credit", "--amount", amount, "--ref", amount, "--env", "test")["amountMicros"])
	}
	require.Equal(t, "-500000", wallet("adjust", "--amount", "-0.5", "--reason", "x", "--ref", "d", "--env", "test")["amountMicros"])

	text := c.run("", "wallet", "show", "--org", org, "--env", "test")
	require.NoError(t, text.err)
	require.Regexp(t, `balanceMicros +15100005\n`, text.stdout)

	month := wallet("statements", "--env", "test")["data"].([]any)[0].(map[string]any)["month"].(string)
	require.Equal(t, "15100005", wallet("statement", "--env", "test", "--month", month)["closingMicros"])
	file := c.run("", "wallet", "statement", "--org", org, "--env", "test", "--month", month, "--format", "csv")
	require.NoError(t, file.err)
	rows, err := csv.NewReader(strings.NewReader(file.stdout)).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"line", "opening", "credit"}, []string{rows[0][0], rows[1][0], rows[2][0]})
	require.Equal(t, "15100005", rows[len(rows)-1][13])
	c.refused("The wallet has no statement of this month", "wallet", "statement", "--org", org, "--month", "2020-01")

	require.Equal(t, true, c.json("doctor")["ok"])
}

// TestPaymentCommands: payments are listed, credited to an organization, and ignored for a reason.
func TestPaymentCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	book := billing.NewBook(c.db())
	var ids []string
	for _, id := range []string{"17", "18"} {
		payment, err := book.Receive(t.Context(), billing.Receipt{
			Provider: "sepay", ID: id, Kind: billing.PaymentPaid, Amount: 500, Currency: "VND", Micros: 5000, Text: "for " + id, PaidAt: 1,
		})
		require.NoError(t, err)
		ids = append(ids, payment.PayID)
	}
	require.Equal(t, "credited", c.json("payment", "match", ids[0], "--org", org)["state"])
	require.Equal(t, "5000", c.json("wallet", "show", "--org", org)["balanceMicros"])
	c.refused("The payment is credited.", "payment", "match", ids[0], "--org", org)
	c.refused("There is no organization with this id", "payment", "match", ids[1], "--org", "org_none")
	c.refused(`required flag(s) "reason" not set`, "payment", "ignore", ids[1])
	list := c.run("", "payment", "list", "--state", "waiting")
	require.NoError(t, list.err)
	require.Regexp(t, `ID +STATE.*\n`+ids[1]+` +unmatched +no_code +500 +VND +sepay +- +for 18 `, list.stdout)
	require.Equal(t, "a gift", c.json("payment", "ignore", ids[1], "--reason", "a gift")["note"])
	require.Equal(t, "ignored", c.json("payment", "show", ids[1])["state"])
	require.Len(t, c.json("payment", "list", "--org", org)["data"], 1)
}

func TestWalletCommandsRefuse(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	c.json("wallet", "credit", "--org", org, "--micros", "100", "--ref", "a")
	with := func(args ...string) []string { return append([]string{"wallet"}, append(args, "--org", org)...) }

	refused := c.run("", with("credit", "--micros", "101", "--ref", "a")...)
	require.Regexp(t, `the reference already names another posting: "a" is txn_\w+, a credit of 100 micros at 20\d\d-`, refused.err.Error())
	c.refused(`required flag(s) "ref" not set`, with("credit", "--micros", "1")...)
	c.refused("--ref is not valid: expected length >= 1", with("credit", "--micros", "1", "--ref", "")...)
	c.refused("--ref is not valid: expected length >= 1", with("adjust", "--micros", "1", "--reason", "x", "--ref", "")...)
	c.refused("[micros amount]", with("credit", "--ref", "b")...)
	c.refused("[amount micros]", with("credit", "--ref", "b", "--micros", "1", "--amount", "1")...)
	for _, amount := range []string{"", ".", "1.", ".5", "1.0000001", "1e3", "0x1", "--1", "9223372036855", "1,5"} {
		c.refused(`invalid argument "`+amount+`" for "--amount"`, with("credit", "--ref", "b", "--amount", amount)...)
	}
	for _, micros := range []string{"010", "0x10", "1_000", "1.5", "1e3", "", "9223372036854775808", "$5"} {
		c.refused(`invalid argument "`+micros+`" for "--micros"`, with("credit", "--ref", "b", "--micros", micros)...)
	}
	c.refused("a credit needs an amount above 0", with("credit", "--ref", "b", "--micros", "0")...)
	c.refused("a credit needs an amount above 0", with("credit", "--ref", "b", "--micros", "-5")...)
	c.refused("an adjustment needs an amount other than 0", with("adjust", "--ref", "b", "--micros", "0", "--reason", "x")...)
	c.refused(`required flag(s) "reason" not set`, with("adjust", "--ref", "b", "--micros", "1")...)
	c.refused("an adjustment needs a reason", with("adjust", "--ref", "b", "--micros", "1", "--reason", " ")...)
	c.refused("The free balance is too small: of the balance of 100 micros, 0 are held and 100 are free",
		with("adjust", "--ref", "b", "--micros", "-101", "--reason", "x")...)
	c.refused(`--env is not valid: expected value to be one of "live, test"`, with("show", "--env", "LIVE")...)
	c.refused(`there is no organization "org_x"`, "wallet", "credit", "--org", "org_x", "--micros", "1", "--ref", "b")
	c.refused(`there is no organization "org_x"`, "wallet", "show", "--org", "org_x")
	c.refused(`no call has the id "call_x"`, "wallet", "refund", "call_x")
	c.refused("takes exactly one argument, the call's id", "wallet", "refund")
	require.Equal(t, "100", c.json("wallet", "show", "--org", org)["balanceMicros"])

	odd := c.run("", with("adjust", "--ref", "odd", "--micros", "1", "--reason", "two\nlines \x1b[2J")...)
	require.NoError(t, odd.err)
	require.NotContains(t, odd.stdout, "\x1b", "nothing that was written by others moves the terminal's cursor")
	require.Regexp(t, `(?m)^reason +two.*lines`, odd.stdout)
}

func TestWalletRefundCommand(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	c.json("wallet", "credit", "--org", org, "--micros", "100", "--ref", "a", "--env", "test")
	c.charge(billing.WalletID{OrgID: org, Env: store.Test}, "call_1", 30)
	require.Equal(t, "70", c.json("wallet", "show", "--org", org, "--env", "test")["balanceMicros"])
	for outcome, calls := range map[string]int{"completed": 1, "client_gone": 0} {
		require.Len(t, c.json("wallet", "calls", "--org", org, "--env", "test", "--model", "local/echo", "--outcome", outcome)["data"], calls)
	}
	require.Regexp(t, `\n\S+ +call_1 +- +local/echo +completed +0 +30 +30\n`, c.run("", "wallet", "calls", "--org", org, "--env", "test").stdout)

	refund := c.json("wallet", "refund", "call_1", "--ref", "ticket-4711")
	require.Equal(t, "30", refund["amountMicros"])
	require.Equal(t, "100", refund["balanceMicros"])
	require.Equal(t, "test", refund["environment"])
	require.Equal(t, "refund", refund["kind"])
	require.Equal(t, "ticket-4711", refund["reference"])
	require.Equal(t, "call_1", refund["callId"])
	require.Equal(t, true, c.json("wallet", "refund", "call_1")["replayed"], "once")
	require.Equal(t, "100", c.json("wallet", "show", "--org", org, "--env", "test")["balanceMicros"])
	require.Equal(t, true, c.json("doctor")["ok"])

	text := c.run("", "wallet", "refund", "call_1")
	require.NoError(t, text.err)
	require.Regexp(t, `replayed +true\n`, text.stdout)
}

// charge books a model call that cost micros, as the server would.
func (c *commandLine) charge(wallet billing.WalletID, callID string, micros int64) {
	c.t.Helper()
	book := billing.NewBook(c.db())
	_, err := book.Hold(c.t.Context(), billing.Hold{
		CallID: callID, Wallet: wallet, AmountMicros: micros, ExpiresIn: time.Minute,
	})
	require.NoError(c.t, err)
	_, err = book.Settle(c.t.Context(), billing.Settlement{
		Call: billing.Call{
			ID: callID, Wallet: wallet, Model: "local/echo", Provider: "local", RequestID: "req_1",
			Usage: billing.Usage{CompletionTokens: micros}, UsageSource: billing.UsageProvider, Outcome: "completed",
		},
		Price: billing.Price{Output: 1_000_000}, ReservedMicros: micros,
	})
	require.NoError(c.t, err)
}

func TestBudgetCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	made := c.json("budget", "create", "--org", org, "--name", "all", "--period", "month", "--limit", "1.5", "--thresholds", "80,100")
	require.Equal(t, []any{"1500000", "[80 100]", "live"}, []any{made["limitMicros"], fmt.Sprint(made["thresholds"]), made["environment"]})
	id := made["id"].(string)
	require.Equal(t, "900000", c.json("budget", "set", id, "--limit-micros", "900000", "--thresholds", "")["limitMicros"])
	rise := c.json("budget", "raise", id, "--amount", "0.1", "--ends-at", "2100-01-01T00:00:00Z", "--reason", "a fair")
	shown := c.json("budget", "show", id)
	require.Equal(t, []any{"100000", []any{}}, []any{shown["risenMicros"], shown["thresholds"]})
	c.json("budget", "end-rise", rise["id"].(string), "--budget", id)
	require.Equal(t, "0", c.json("budget", "list", "--org", org)["data"].([]any)[0].(map[string]any)["risenMicros"])
	c.json("budget", "end", id)
	require.Empty(t, c.json("budget", "list", "--org", org)["data"])

	c.refused("--limit-micros must be a whole number of micros above 0", "budget", "create", "--org", org, "--name", "n", "--period", "day", "--limit", "0")
	c.refused("want numbers with commas between", "budget", "create", "--org", org, "--name", "n", "--period", "day", "--limit", "1", "--thresholds", "50,x")
	c.refused("no budget has the id", "budget", "show", id+"x")
	c.refused("There is no budget with this id", "budget", "set", id, "--name", "n")
}
