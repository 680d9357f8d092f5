package mnist

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// maxDownload bounds a downloaded file, compressed and decompressed. The
// largest, the training images, has 47,040,016 bytes decompressed.
const maxDownload = 64 << 20

// mirrors are public copies of the four original files, tried in this order.
func mirrors() []string {
	return []string{
		"https://storage.googleapis.com/cvdf-datasets/mnist/",
		"https://ossci-datasets.s3.amazonaws.com/mnist/",
	}
}

// cacheDir is where downloaded files are kept: mezzo/mnist in the user's cache
// directory (os.UserCacheDir).
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("mnist: no cache directory, name a directory of MNIST files instead: %w", err)
	}
	return filepath.Join(dir, "mezzo", "mnist"), nil
}

// tempFile is what the downloader needs of an *os.File.
type tempFile interface {
	io.WriteCloser
	Name() string
	Sync() error
}

// downloader brings files into a directory. A file appears there whole and
// verified or not at all, also when several processes download at once.
type downloader struct {
	client  *http.Client
	mirrors []string // base URLs ending in "/"
	dir     string
	create  func(dir, pattern string) (tempFile, error) // os.CreateTemp but in tests

	progress []func(url string, done, total int) // total is -1 where it is not known
}

// newDownloader returns a downloader from the public mirrors.
func newDownloader(dir string) *downloader {
	return &downloader{
		client:  &http.Client{Timeout: 10 * time.Minute},
		mirrors: mirrors(),
		dir:     dir,
		create: func(dir, pattern string) (tempFile, error) {
			return os.CreateTemp(dir, pattern)
		},
	}
}

// errLocal marks a failure of this machine's disk, which no other mirror cures.
var errLocal = errors.New("cannot store the file")

// get makes sure that the file name is in the directory with the wanted SHA-256
// of its decompressed content. A file already there and right is kept; otherwise
// the mirrors are tried in turn.
func (d *downloader) get(ctx context.Context, name, want string) error {
	path := filepath.Join(d.dir, name)
	if got, err := contentSum(path); err == nil && got == want {
		return nil
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("mnist: %s: %w: %w", path, errLocal, err)
	}
	if len(d.mirrors) == 0 {
		return fmt.Errorf("mnist: %s: got no mirror to download it from, want one or more", path)
	}
	var failures []error
	for _, base := range d.mirrors {
		err := d.fetch(ctx, base, name, want)
		if err == nil {
			return nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil || errors.Is(err, errLocal) {
			break
		}
	}
	return errors.Join(failures...)
}

// fetch downloads one file from one mirror: into a temporary file beside its
// final place, verified, flushed to disk and only then renamed. The temporary
// file is removed on every failure.
func (d *downloader) fetch(ctx context.Context, base, name, want string) (err error) {
	path := filepath.Join(d.dir, name)
	url := base + name
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("mnist: %s: %w", url, err)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("mnist: %s: %w", name, err) // err names the URL
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("mnist: %s: got HTTP status %s, want 200 OK", url, resp.Status)
	}

	tmp, err := d.create(d.dir, "."+name+".*.partial")
	if err != nil {
		return fmt.Errorf("mnist: %s: %w: %w", path, errLocal, err)
	}
	defer func() {
		if err != nil {
			tmp.Close() // a second Close does no harm
			os.Remove(tmp.Name())
		}
	}()
	w := &recorder{w: tmp, wrote: func(done int) {
		for _, p := range d.progress {
			p(url, done, int(resp.ContentLength))
		}
	}}
	n, err := io.Copy(w, io.LimitReader(resp.Body, maxDownload+1))
	switch {
	case w.err != nil:
		return fmt.Errorf("mnist: %s: %w after %d bytes: %w", path, errLocal, n, w.err)
	case err != nil:
		return fmt.Errorf("mnist: %s: download broke off after %d bytes: %w", url, n, err)
	case n > maxDownload:
		return fmt.Errorf("mnist: %s: got more than %d bytes, want the MNIST file %s", url, maxDownload, name)
	}
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("mnist: %s: %w: %w", path, errLocal, err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("mnist: %s: %w: %w", path, errLocal, err)
	}
	got, err := contentSum(tmp.Name())
	if err != nil {
		return fmt.Errorf("mnist: %s: the downloaded file cannot be read, it was not kept: %w", url, err)
	}
	if got != want {
		return fmt.Errorf("mnist: %s: got SHA-256 %s of the decompressed content, want %s; the file was not kept", url, got, want)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("mnist: %s: %w: %w", path, errLocal, err)
	}
	if err := (atomicfile.System{}).SyncDir(d.dir); err != nil {
		return fmt.Errorf("mnist: %s: %w: %w", path, errLocal, err)
	}
	return nil
}

// recorder remembers the error of the writer behind it, which io.Copy does not
// tell apart from the reader's, and tells how many bytes were written.
type recorder struct {
	w     io.Writer
	err   error
	done  int
	wrote func(done int)
}

func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	r.err = err
	r.done += n
	r.wrote(r.done)
	return n, err
}

// contentSum returns the SHA-256 of a file's decompressed content in
// hexadecimal.
func contentSum(path string) (string, error) {
	f, _, err := safeio.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	r, err := decompress(f)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, maxDownload+1))
	if err != nil {
		return "", err
	}
	if n > maxDownload {
		return "", fmt.Errorf("got more than %d bytes of decompressed content, want at most that", maxDownload)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// downloadAll brings the four files of MNIST into the downloader's directory.
func (d *downloader) downloadAll(ctx context.Context) error {
	for _, f := range dataFiles() {
		if err := d.get(ctx, f.names()[0], f.sum); err != nil {
			return fmt.Errorf("%w\n(without a network, put %s into a directory and name it)", err, strings.Join(standardNames(), ", "))
		}
	}
	return nil
}
