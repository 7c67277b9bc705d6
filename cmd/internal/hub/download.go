package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

var (
	// ErrHash is wrapped if a complete download has other contents than the hub lists.
	ErrHash = errors.New("hub: wrong contents")
	// ErrFull is wrapped if the disk is full. The part that was downloaded is kept.
	ErrFull = errors.New("hub: the disk is full")
)

// lockEvery is the time between attempts to take a lock that is held.
const lockEvery = 100 * time.Millisecond

// download downloads one file into blobs.
type download struct {
	hub      *Hub
	repo     string
	commit   string
	file     file
	dir      string // of the repository
	progress func(done int64)

	out *os.File
	sum hash.Hash // hash of the bytes in out
	at  int64     // number of bytes in out
}

// run downloads the file while it holds the blob's lock. It does nothing if the blob is complete,
// for example because another process completed it meanwhile. After an error the bytes received
// are kept, unless the error is ErrHash.
func (d *download) run(ctx context.Context) error {
	blob := filepath.Join(d.dir, "blobs", d.file.hash)
	if d.there(blob) {
		return nil
	}
	// The lock file is that of huggingface_hub. It stays: if it were removed, two processes could hold
	// locks on different files of one name.
	lock := flock.New(filepath.Join(d.hub.cfg.Dir, ".locks", filepath.Base(d.dir), d.file.hash+".lock"), flock.SetPermissions(0o644))
	err := errors.Join(os.MkdirAll(filepath.Dir(lock.Path()), 0o755), os.MkdirAll(filepath.Dir(blob), 0o755))
	if err != nil {
		return err
	}
	if _, err := lock.TryLockContext(ctx, lockEvery); err != nil {
		return err
	}
	defer lock.Close()
	if d.there(blob) {
		return nil
	}
	partial := blob + ".incomplete"
	if d.out, err = os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	err = d.fill(ctx)
	if err == nil {
		err = d.out.Sync()
	}
	err = errors.Join(noRoom(err, d.file.size-d.at), d.out.Close())
	if errors.Is(err, ErrHash) {
		return errors.Join(err, os.Remove(partial))
	}
	if err != nil {
		return err
	}
	return rename(partial, blob)
}

// there reports whether the file blob is complete, and if so reports its size as progress. A blob
// gets its name only after its hash was checked, so comparing the size is enough.
func (d *download) there(blob string) bool {
	info, err := os.Stat(blob)
	if err != nil || !info.Mode().IsRegular() || info.Size() != d.file.size {
		return false
	}
	d.progress(d.file.size)
	return true
}

// noRoom wraps err in ErrFull if err means that the disk is full; otherwise it returns err.
// missing is the number of bytes not yet written.
func noRoom(err error, missing int64) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %d MB more are needed; pull again to go on", ErrFull, missing/1e6+1)
	}
	return err
}

// fill downloads the missing bytes of d.out and checks the hash. If the hash is wrong and d.out
// began with bytes of an earlier run, it downloads the whole file once more.
func (d *download) fill(ctx context.Context) error {
	if err := d.resume(); err != nil {
		return err
	}
	again := d.at > 0
	for {
		if err := d.load(ctx); err != nil {
			return err
		}
		got := hex.EncodeToString(d.sum.Sum(nil))
		if got == d.file.hash {
			return nil
		}
		if !again {
			return fmt.Errorf("%w: its hash is %s, want %s", ErrHash, got, d.file.hash)
		}
		again = false
		if err := d.restart(); err != nil {
			return err
		}
	}
}

// resume sets d.at and d.sum for the bytes that an earlier run has left in d.out. If these are
// more than the file has, it discards them.
func (d *download) resume() error {
	d.begin()
	info, err := d.out.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	if info.Size() > d.file.size {
		return d.restart()
	}
	d.at, err = io.Copy(d.sum, d.out)
	return err
}

// begin sets d.at to 0 and d.sum to a new hash. Git's hash is over a header and the contents.
func (d *download) begin() {
	d.at, d.sum = 0, sha256.New()
	if !d.file.lfs {
		d.sum = sha1.New()
		fmt.Fprintf(d.sum, "blob %d\x00", d.file.size)
	}
}

// restart discards the bytes in out.
func (d *download) restart() error {
	if err := d.out.Truncate(0); err != nil {
		return err
	}
	d.begin()
	_, err := d.out.Seek(0, io.SeekStart)
	return err
}

// load reads until d.out has the file's size, with as many requests as that takes.
func (d *download) load(ctx context.Context) error {
	return d.hub.retry(ctx, func() (progress bool, err error) {
		from := d.at
		if from < d.file.size {
			err = d.request(ctx)
		}
		return d.at > from, err
	})
}

// passes reports whether another attempt may succeed after err. That is so for errors of the
// network, and for a refusal whose field again is set.
func passes(err error) bool {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.again
	}
	disk := (*os.PathError)(nil)
	return !errors.Is(err, ErrHash) && !errors.As(err, &disk) && !errors.Is(err, ErrAnswer)
}

// request requests the missing bytes once, and writes those that arrive. It fails if no byte
// arrives for Config.Stall, or if the response ends before the file is complete.
func (d *download) request(ctx context.Context) error {
	ctx, alive, stop := d.hub.watched(ctx)
	defer stop()
	resp, err := d.hub.get(ctx, d.address(), d.at)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && d.at > 0 {
		return errors.Join(d.restart(), errors.New("hub: the rest was refused, the whole comes next"))
	}
	if err := d.hub.refused(resp, d.repo); err != nil {
		return err
	}
	if err := d.place(resp); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := resp.Body.Read(buf)
		alive()
		if int64(n) > d.file.size-d.at {
			return fmt.Errorf("%w: it is longer than the %d bytes that the hub says", ErrHash, d.file.size)
		}
		if _, err := d.out.Write(buf[:n]); err != nil {
			return err
		}
		d.sum.Write(buf[:n])
		d.at += int64(n)
		d.progress(d.at)
		if err == io.EOF && d.at == d.file.size {
			return nil
		}
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// place checks that the body of resp begins where d.out ends. A server without range support
// sends the whole file again; then place discards the bytes in d.out.
func (d *download) place(resp *http.Response) error {
	if resp.StatusCode == http.StatusPartialContent {
		var from, to, size int64
		_, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size)
		if err != nil || from != d.at || size != d.file.size {
			return fmt.Errorf("%w: asked from byte %d of %d on, the answer is of %.80q", ErrAnswer, d.at, d.file.size, resp.Header.Get("Content-Range"))
		}
		return nil
	}
	if resp.ContentLength >= 0 && resp.ContentLength != d.file.size {
		return fmt.Errorf("%w: %d bytes come, the hub lists %d", ErrHash, resp.ContentLength, d.file.size)
	}
	if d.at == 0 {
		return nil
	}
	return d.restart()
}

// address returns the file's URL, at the commit that was listed.
func (d *download) address() string {
	parts := strings.Split(d.file.path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", d.hub.cfg.Endpoint, d.repo, d.commit, strings.Join(parts, "/"))
}
