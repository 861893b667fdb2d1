package archive_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/archive"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// smallArchive is an archive of one block with a row or two of every table.
func smallArchive(t testing.TB) []byte {
	t.Helper()
	db := storetest.Open(t, store.SQLite)
	fillEveryTable(t, db)
	var stream bytes.Buffer
	_, err := archive.Export(t.Context(), db, &stream, archive.ExportOptions{})
	require.NoError(t, err)
	return stream.Bytes()
}

// An archive with a byte changed, or cut, is never taken for a whole one: one byte in eleven, and each with SVC_SOAK.
func TestDamagedArchives(t *testing.T) {
	t.Parallel()
	packed := smallArchive(t)
	rows, err := archive.ReadArchive(bytes.NewReader(packed))
	require.NoError(t, err)
	require.Equal(t, 100, rows)
	_, err = archive.ReadArchive(iotest.OneByteReader(bytes.NewReader(packed)))
	require.NoError(t, err)

	step := 11
	if os.Getenv("SVC_SOAK") != "" {
		step = 1
	}
	for at := 0; at < len(packed); at += step {
		changed := bytes.Clone(packed)
		changed[at] ^= 4
		_, err := archive.ReadArchive(bytes.NewReader(changed))
		require.Error(t, err, "byte %d", at)
		require.NotContains(t, err.Error(), "Hà Nội", "no error shows what is in a row")
		if at%5 > 0 {
			continue // each takes its time
		}
		_, err = archive.ReadArchive(bytes.NewReader(packed[:at]))
		require.Error(t, err, "cut to %d bytes", at)
	}

	lines := strings.SplitAfter(string(packed), "\n")
	lines = lines[:len(lines)-1]
	for i := 1; i < len(lines); i++ {
		left := strings.Join(lines[:i], "") + strings.Join(lines[i+1:], "")
		_, err := archive.ReadArchive(strings.NewReader(left))
		require.ErrorIs(t, err, archive.ErrDamaged, "without line %d", i+1)
		twice := strings.Join(lines[:i+1], "") + strings.Join(lines[i:], "")
		_, err = archive.ReadArchive(strings.NewReader(twice))
		require.ErrorIs(t, err, archive.ErrDamaged, "with line %d twice", i+1)
	}

	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	_, err = zip.Write(packed)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	plain, err := gzip.NewReader(bytes.NewReader(compressed.Bytes()[:compressed.Len()-20]))
	require.NoError(t, err)
	_, err = archive.ReadArchive(plain)
	require.ErrorContains(t, err, "the archive is cut")
}

// sealLines closes the lines of one block with what its checksums say, as an export would.
func sealLines(lines, end string) string {
	sum := func(text string) string {
		digest := sha256.Sum256([]byte(text))
		return hex.EncodeToString(digest[:])
	}
	lines += fmt.Sprintf(`{"block":1,"sha256":"%s"}`+"\n", sum(lines))
	return lines + fmt.Sprintf(`{"end":%s,"sha256":"%s"}`+"\n", end, sum(lines))
}

// wholeArchive is an archive of one block with these rows, by table.
func wholeArchive(rows map[string][]string) string {
	names, _ := archive.ArchivedTables()
	lines, counts := header("1", "1"), make([]string, len(names))
	for place, name := range names {
		lines += archive.TableLine(place)
		for _, row := range rows[name] {
			lines += row + "\n"
		}
		counts[place] = fmt.Sprintf("%q:%d", name, len(rows[name]))
	}
	return sealLines(lines, "{"+strings.Join(counts, ",")+"}")
}

// TestArchivesThatNoExportWrote guarantees that an archive which no export writes is refused with its line and the fault, and that nothing of
// it is imported.
func TestArchivesThatNoExportWrote(t *testing.T) {
	t.Parallel()
	begin := header("1", "1")
	organizations := archive.TableLine(0)
	acme := func(name, createdAt string) string {
		return `["org_1",` + name + `,"p",` + createdAt + `,null,0,0,0,15,null,"","","","UTC",0]` + "\n"
	}
	for name, c := range map[string]struct {
		packed string
		want   error
		says   string
	}{
		"nothing":              {"", archive.ErrDamaged, "not one line"},
		"another file":         {"SQLite format 3\x00\n", archive.ErrDamaged, "line 1: this is no archive"},
		"other JSON":           {`{"format":"x"}` + "\n", archive.ErrDamaged, "line 1: this is no archive"},
		"a newer format":       {header("2", "1"), archive.ErrOtherVersion, "its format has version 2, this program's 1"},
		"an older format":      {header("0", "1"), archive.ErrOtherVersion, "its format has version 0"},
		"newer tables":         {header("1", "1000"), archive.ErrOtherVersion, "its tables have version 1000, this program's 1"},
		"older tables":         {header("1", "0"), archive.ErrOtherVersion, "its tables have version 0, this program's 1"},
		"no name":              {strings.Replace(begin, "arc_1", "", 1), archive.ErrDamaged, "line 1: the first line"},
		"the header only":      {begin, archive.ErrDamaged, "cut"},
		"a row at once":        {begin + `["org_1"]` + "\n", archive.ErrDamaged, "line 2: a row before its table"},
		"an unknown table":     {begin + `{"table":"sessions","columns":["hash"]}` + "\n", archive.ErrDamaged, "line 2: a table that is unknown"},
		"our own table":        {begin + `{"table":"schema_migrations","columns":["id"]}` + "\n", archive.ErrDamaged, "line 2: a table that is unknown"},
		"tables out of order":  {begin + archive.TableLine(1) + organizations, archive.ErrDamaged, "line 2: a table that is unknown or out of order"},
		"a table twice":        {begin + organizations + organizations, archive.ErrDamaged, "line 3: a table that is unknown or out of order"},
		"an unknown column":    {begin + `{"table":"organizations","columns":["id; DROP TABLE calls"]}` + "\n", archive.ErrDamaged, "line 2: table organizations has other columns"},
		"a column less":        {begin + strings.Replace(organizations, `"id",`, "", 1), archive.ErrDamaged, "line 2: table organizations has other columns"},
		"a column more":        {begin + strings.Replace(organizations, `"id",`, `"id","id",`, 1), archive.ErrDamaged, "line 2: table organizations has"},
		"tables missing":       {sealLines(begin+organizations+acme(`"n"`, "1"), `{"organizations":1}`), archive.ErrDamaged, "it doesn't fit"},
		"an empty line":        {begin + "\n", archive.ErrDamaged, "line 2: it is neither"},
		"a row of other width": {sealLines(begin+organizations+`["org_1"]`+"\n", `{"organizations":1}`), archive.ErrDamaged, "line 3: the row doesn't have the columns"},
		"a row that isn't one": {sealLines(begin+organizations+`[}`+"\n", `{"organizations":1}`), archive.ErrDamaged, "line 3: the row"},
		"a fraction":           {sealLines(begin+organizations+acme(`"n"`, "1.5"), `{"organizations":1}`), archive.ErrDamaged, "line 3: organizations.created_at has a value that is no BIGINT"},
		"a number as text":     {sealLines(begin+organizations+acme("7", "1"), `{"organizations":1}`), archive.ErrDamaged, "organizations.name has a value that is no TEXT"},
		"a wrong count":        {strings.Replace(wholeArchive(map[string][]string{"organizations": {strings.TrimSpace(acme(`"n"`, "1"))}}), `"organizations":1`, `"organizations":2`, 1), archive.ErrDamaged, "it doesn't fit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, store.SQLite)
			_, err := archive.Import(t.Context(), db, strings.NewReader(c.packed), archive.ImportOptions{})
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.says)
			require.Zero(t, countRows(t, db, "organizations"))
		})
	}
}

func countRows(t testing.TB, db *store.DB, from string) (n int) {
	t.Helper()
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM `+from).Scan(&n))
	return n
}

// Every other row the schema refuses is refused by an import, too, whatever the checksums say.
func TestImportKeepsTheConstraints(t *testing.T) {
	t.Parallel()
	packed := wholeArchive(map[string][]string{"wallets": {`["org_1","live",0,0,0,0,0,0,0]`}})
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		_, err := archive.Import(t.Context(), db, strings.NewReader(packed), archive.ImportOptions{})
		require.ErrorIs(t, err, store.ErrNotFound, "the organization")
		require.Zero(t, countRows(t, db, "wallets"))
	})
}

// manyRows is an archive with a table of any size that is made while it is read.
type manyRows struct {
	t     testing.TB
	left  int // blocks
	block int
	text  bytes.Buffer
	sum   interface {
		io.Writer
		Sum(to []byte) []byte
	}
	peak *uint64
}

// audit is the place of the table.
func (m *manyRows) audit() int {
	names, _ := archive.ArchivedTables()
	return slices.Index(names, "audit_log")
}

func (m *manyRows) line(text string) {
	m.text.WriteString(text)
	m.sum.Write([]byte(text))
}

func (m *manyRows) Read(p []byte) (int, error) {
	if m.text.Len() > 0 {
		return m.text.Read(p)
	}
	if m.left == 0 {
		return 0, io.EOF
	}
	const rows = 100
	if m.block == 0 {
		m.line(header("1", "1"))
		for place := range m.audit() + 1 {
			m.line(archive.TableLine(place))
		}
	}
	m.block++
	for i := range rows {
		m.line(fmt.Sprintf(`["aud_%d",1,"","","","","%s"]`+"\n", m.block*rows+i, strings.Repeat("x", 10_000)))
	}
	m.line(fmt.Sprintf(`{"block":%d,"sha256":"%x"}`+"\n", m.block, m.sum.Sum(nil)))
	if m.left--; m.left == 0 {
		names, _ := archive.ArchivedTables()
		counts := map[string]int{}
		for place, name := range names {
			if counts[name] = 0; place > m.audit() {
				m.line(archive.TableLine(place))
			}
		}
		counts["audit_log"] = m.block * rows
		end, err := json.Marshal(counts)
		require.NoError(m.t, err)
		m.line(fmt.Sprintf(`{"end":%s,"sha256":"%x"}`+"\n", end, m.sum.Sum(nil)))
	}
	*m.peak = max(*m.peak, liveHeap())
	return m.text.Read(p)
}

// liveHeap is what the program keeps, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// measuringWriter looks at the heap now and then.
type measuringWriter struct {
	taken, looked int
	peak          uint64
}

func (w *measuringWriter) Write(p []byte) (int, error) {
	w.taken += len(p)
	if w.taken-w.looked > 4<<20 {
		w.looked, w.peak = w.taken, max(w.peak, liveHeap())
	}
	return len(p), nil
}

// A large store moves in little memory: 24 MB pass with less than 12 MB kept. It isn't parallel, since others would be
// measured with it.
func TestArchivesTakeLittleMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	const bound = 12 << 20
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			db := storetest.Open(t, engine)
			before := liveHeap()
			var peak uint64
			_, err := archive.Import(t.Context(), db, &manyRows{t: t, left: 24, sum: sha256.New(), peak: &peak}, archive.ImportOptions{})
			require.NoError(t, err)
			require.Less(t, peak, before+bound)

			var writer measuringWriter
			summary, err := archive.Export(t.Context(), db, &writer, archive.ExportOptions{})
			require.NoError(t, err)
			require.EqualValues(t, 2_400, summary.Total())
			require.Greater(t, writer.taken, 24_000_000)
			require.Less(t, writer.peak, before+bound)
		})
	}
}

// Whatever stands in a file, reading it ends with an error or with a whole archive, never with a panic.
func FuzzReadArchive(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{}\n", header("1", "1"), header("1", "1") + "[]\n", header("1", "1") + archive.TableLine(0) + "[\n",
		wholeArchive(map[string][]string{"organizations": {`["org_1","n","p",1,null,0,0,0,15,null,"","","","UTC",0]`}}),
		wholeArchive(map[string][]string{"organizations": {`[null,null,null,null,null,null,null,null,null,null,null,null,null,null]`}}),
		wholeArchive(map[string][]string{"provider_keys": {`["org_1","p","AAE=","",1]`}}),
		header("1", "1") + `{"end":{},"sha256":""}` + "\n", header("1", "1") + `{"block":1}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		rows, err := archive.ReadArchive(bytes.NewReader(packed))
		if err == nil {
			require.LessOrEqual(t, rows, bytes.Count(packed, []byte("\n")))
			require.Contains(t, string(packed), `"sha256"`)
		}
	})
}
