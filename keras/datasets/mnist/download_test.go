package mnist

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

const wanted = "train-labels-idx1-ubyte.gz"

// serve starts a loopback server; requests counts what it was asked.
func serve(t *testing.T, h http.HandlerFunc) (base string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/", requests
}

func testDownloader(t *testing.T, mirrors ...string) *downloader {
	d := newDownloader(filepath.Join(t.TempDir(), "made", "on", "demand"))
	d.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	d.mirrors = mirrors
	return d
}

// wantFiles checks what is in the downloader's directory, hidden files too.
func wantFiles(t *testing.T, d *downloader, want ...string) {
	t.Helper()
	var got []string
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got files %q, want %q", got, want)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("got error %q, want it to contain %q", err, p)
		}
	}
}

func TestGetDownloadsOnceAndRepairs(t *testing.T) {
	content := encodeIDX(0x801, []uint32{300}, ramp(300))
	packed := compress(t, content)
	base, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/"+wanted {
			http.NotFound(w, r)
			return
		}
		w.Write(packed)
	})
	d := testDownloader(t, base)
	for range 2 {
		if err := d.get(t.Context(), wanted, sum(content)); err != nil {
			t.Fatal(err)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("got %d requests, want 1: a file present and right is not fetched again", n)
	}
	wantFiles(t, d, wanted)
	path := filepath.Join(d.dir, wanted)
	if _, data, err := readIDX(path, 1, 0); err != nil || string(data) != string(ramp(300)) {
		t.Errorf("the downloaded file reads as %d bytes and error %v", len(data), err)
	}

	if err := os.WriteFile(path, packed[:40], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.get(t.Context(), wanted, sum(content)); err != nil {
		t.Fatal(err)
	}
	if got, err := contentSum(path); err != nil || got != sum(content) {
		t.Errorf("a damaged file in the cache was not replaced: SHA-256 %s, error %v", got, err)
	}
}

// TestProgress: a download tells how far it is, as Keras shows it.
func TestProgress(t *testing.T) {
	content := make([]byte, 100<<10) // several parts
	for i := range content {
		content[i] = byte(i * i >> 3)
	}
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Write(content)
	})
	d := testDownloader(t, base)
	var out strings.Builder
	last, calls := 0, 0
	d.progress = []func(string, int, int){Progbar(&out), func(url string, done, total int) {
		if calls++; url != base+wanted || done <= last || total != len(content) {
			t.Errorf("got %s %d of %d after %d, want %s and %d in all", url, done, total, last, base+wanted, len(content))
		}
		last = done
	}}
	if err := d.get(t.Context(), wanted, sum(content)); err != nil {
		t.Fatal(err)
	}
	if last != len(content) || calls < 2 {
		t.Errorf("got %d bytes in %d calls, want %d in several", last, calls, len(content))
	}
	want := regexp.MustCompile(`^Downloading data from ` + regexp.QuoteMeta(base+wanted) + `\n102400/102400 - 0s - \S+/step\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%s\nwant %s", &out, want)
	}
}

func TestGetWrongChecksum(t *testing.T) {
	other := encodeIDX(0x801, []uint32{5}, ramp(5))
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write(compress(t, other)) })
	d := testDownloader(t, base)
	want := sum([]byte("the original"))
	err := d.get(t.Context(), wanted, want)
	wantError(t, err, base+wanted, "got SHA-256 "+sum(other), "want "+want, "not kept")
	wantFiles(t, d)
}

func TestGetNotTheFileAtAll(t *testing.T) {
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte{0x1f, 0x8b, 1, 2, 3}) })
	d := testDownloader(t, base)
	err := d.get(t.Context(), wanted, sum(nil))
	wantError(t, err, base+wanted, "cannot be read", "not kept")
	wantFiles(t, d)
}

func TestGetTriesTheMirrorsInOrder(t *testing.T) {
	content := encodeIDX(0x801, []uint32{5}, ramp(5))
	gone, goneRequests := serve(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	wrong, wrongRequests := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) })
	good, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write(compress(t, content)) })
	last, lastRequests := serve(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })

	d := testDownloader(t, gone, wrong, good, last)
	if err := d.get(t.Context(), wanted, sum(content)); err != nil {
		t.Fatal(err)
	}
	if a, b, c := goneRequests.Load(), wrongRequests.Load(), lastRequests.Load(); a != 1 || b != 1 || c != 0 {
		t.Errorf("got %d, %d and %d requests at the first, second and last mirror, want 1, 1, 0", a, b, c)
	}
	wantFiles(t, d, wanted)

	d = testDownloader(t, gone, wrong)
	err := d.get(t.Context(), wanted, sum(content))
	wantError(t, err, gone+wanted, "got HTTP status 404 Not Found, want 200", wrong+wanted, "got SHA-256")
	wantFiles(t, d)
}

func TestGetInterruptedThenRunAgain(t *testing.T) {
	content := encodeIDX(0x801, []uint32{20000}, ramp(20000))
	var broken atomic.Bool
	broken.Store(true)
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !broken.Load() {
			w.Write(content)
			return
		}
		w.Header().Set("Content-Length", "20008")
		w.Write(content[:10000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler) // closes the connection
	})
	d := testDownloader(t, base)
	err := d.get(t.Context(), wanted, sum(content))
	wantError(t, err, base+wanted, "broke off after 10000 bytes")
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want it to wrap io.ErrUnexpectedEOF", err)
	}
	wantFiles(t, d)

	broken.Store(false)
	if err := d.get(t.Context(), wanted, sum(content)); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, d, wanted)
}

func TestGetCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "20008")
		w.Write(make([]byte, 5000))
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done() // the client went away
	})
	second, secondRequests := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	d := testDownloader(t, base, second)
	err := d.get(ctx, wanted, sum(nil))
	wantError(t, err, wanted)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it to wrap context.Canceled", err)
	}
	if n := secondRequests.Load(); n != 0 {
		t.Errorf("got %d requests at the second mirror after cancellation, want 0", n)
	}
	wantFiles(t, d)
}

func TestGetTooLarge(t *testing.T) {
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 1<<20)
		for range maxDownload>>20 + 8 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	d := testDownloader(t, base)
	d.create = func(dir, pattern string) (tempFile, error) {
		f, err := os.CreateTemp(dir, pattern)
		return &brokenFile{File: f, room: 1 << 62, discard: true}, err
	}
	err := d.get(t.Context(), wanted, sum(nil))
	wantError(t, err, base+wanted, "got more than 67108864 bytes")
	wantFiles(t, d)
}

// brokenFile is a temporary file on a disk with little room.
type brokenFile struct {
	*os.File
	room    int   // bytes until the disk is full
	discard bool  // keep nothing, for a quick test of large files
	sync    error // what Sync answers
}

func (f *brokenFile) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n, _ := f.File.Write(p[:f.room])
		f.room = 0
		return n, syscall.ENOSPC
	}
	f.room -= len(p)
	if f.discard {
		return len(p), nil
	}
	return f.File.Write(p)
}

func (f *brokenFile) Sync() error { return f.sync }

func TestGetFullDisk(t *testing.T) {
	content := encodeIDX(0x801, []uint32{20000}, ramp(20000))
	for name, file := range map[string]brokenFile{
		"while writing":  {room: 7000},
		"while flushing": {room: 1 << 62, sync: syscall.ENOSPC},
	} {
		base, requests := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write(content) })
		d := testDownloader(t, base, base)
		d.create = func(dir, pattern string) (tempFile, error) {
			f, err := os.CreateTemp(dir, pattern)
			file.File = f
			return &file, err
		}
		err := d.get(t.Context(), wanted, sum(content))
		wantError(t, err, filepath.Join(d.dir, wanted), "cannot store the file")
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: got %v, want it to wrap ENOSPC", name, err)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%s: got %d requests, want 1: another mirror does not make room", name, n)
		}
		wantFiles(t, d)

		// With room again, the same call succeeds.
		d.create = newDownloader("").create
		if err := d.get(t.Context(), wanted, sum(content)); err != nil {
			t.Errorf("%s: run again: %v", name, err)
		}
		wantFiles(t, d, wanted)
	}
}

func TestGetNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a-file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDownloader(filepath.Join(file, "sub"))
	d.mirrors = nil
	wantError(t, d.get(t.Context(), wanted, sum(nil)), filepath.Join(file, "sub", wanted), "cannot store the file")
}

func TestDownloadAllNamesTheWayWithoutANetwork(t *testing.T) {
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	d := testDownloader(t, base)
	wantError(t, d.downloadAll(t.Context()), "train-images-idx3-ubyte.gz", "without a network", "t10k-labels-idx1-ubyte.gz")
}

func TestMirrorsAreBaseURLs(t *testing.T) {
	for _, m := range mirrors() {
		if !strings.HasPrefix(m, "https://") || !strings.HasSuffix(m, "/") {
			t.Errorf("mirror %q: want https:// and a final slash", m)
		}
	}
}
