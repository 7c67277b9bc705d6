package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

// Limits of the response that lists a repository's files. A file takes 150 to 400 bytes there.
const (
	maxListing = 32 << 20
	maxFiles   = 100_000
	// maxStalls times Config.Stall is the longest that a listing may take: five minutes by default.
	maxStalls = 10
)

var hashForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// list requests the commit of ref's revision and its files.
func (h *Hub) list(ctx context.Context, ref Ref) (commit string, files []file, err error) {
	address := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", h.cfg.Endpoint, ref.Repo, url.PathEscape(ref.Revision))
	err = h.retry(ctx, func() (bool, error) {
		commit, files, err = h.listOnce(ctx, address, ref.Repo)
		return false, err
	})
	return commit, files, err
}

func (h *Hub) listOnce(ctx context.Context, address, repo string) (commit string, files []file, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxStalls*h.cfg.Stall, errStalled)
	defer cancel()
	ctx, alive, stop := h.watched(ctx)
	defer stop()
	resp, err := h.get(ctx, address, 0)
	if err != nil {
		return "", nil, &refusal{err: fmt.Errorf("%w\nIs the network there? HF_ENDPOINT sets another hub than %s", err, h.cfg.Endpoint)}
	}
	defer resp.Body.Close()
	if err := h.refused(resp, repo); err != nil {
		return "", nil, err
	}
	l := listing{most: h.maxFiles}
	if err := l.read(&listed{resp.Body, h.maxListing, h.maxListing, alive}); err != nil {
		if context.Cause(ctx) == errStalled {
			err = fmt.Errorf("%w; try again later", errStalled)
		}
		return "", nil, fmt.Errorf("%w: the list of %s's files can't be read: %w", ErrAnswer, repo, err)
	}
	if !commitForm.MatchString(l.commit) {
		return "", nil, fmt.Errorf("%w: %s's commit is %.60q", ErrAnswer, repo, l.commit)
	}
	return l.commit, l.files, nil
}

// listed reads the body of a listing, of which most bytes may come, and reports each arrival.
type listed struct {
	body       io.Reader
	most, left int
	alive      func()
}

func (r *listed) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, fmt.Errorf("it has more than %d bytes; is that a model's repository?", r.most)
	}
	n, err := r.body.Read(p[:min(len(p), r.left)])
	r.left -= n
	if n > 0 {
		r.alive()
	}
	return n, err
}

// listing holds the parts of a hub's description of a repository that Pull needs.
type listing struct {
	most   int // most files
	commit string
	files  []file
}

// sibling is a file in such a description.
type sibling struct {
	Path string `json:"rfilename"`
	Size int64  `json:"size"`
	Blob string `json:"blobId"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

// read reads a description, an object. It holds one value of it at a time, or one file of the list
// of files.
func (l *listing) read(body io.Reader) error {
	d := json.NewDecoder(body)
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		switch key {
		case "sha":
			err = d.Decode(&l.commit)
		case "siblings":
			err = l.readFiles(d)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
	return expect(d, '}')
}

// expect reads the next token, which must be this delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err == nil && t != want {
		err = fmt.Errorf("%.40q stands where %v should be", fmt.Sprint(t), want)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readFiles reads the list of files, an array or null.
func (l *listing) readFiles(d *json.Decoder) error {
	if t, err := d.Token(); err != nil || t == nil {
		return err
	} else if t != json.Delim('[') {
		return fmt.Errorf("the files are %.40q, want a list", fmt.Sprint(t))
	}
	for d.More() {
		var s sibling
		if err := d.Decode(&s); err != nil {
			return err
		}
		if len(l.files) == l.most {
			return fmt.Errorf("it has more than %d files; is that a model's repository?", l.most)
		}
		f := file{s.Path, s.Size, s.Blob, false}
		if s.LFS != nil {
			f.size, f.hash, f.lfs = s.LFS.Size, s.LFS.SHA256, true
		}
		goodPath := filepath.IsLocal(f.path) && !strings.ContainsAny(f.path, "\\:\x00")
		goodHash := hashForm.MatchString(f.hash) && f.lfs == (len(f.hash) == 64)
		if !goodPath || !goodHash || f.size < 0 {
			return fmt.Errorf("it has a file %.120q of %d bytes with hash %.80q", f.path, f.size, f.hash)
		}
		l.files = append(l.files, f)
	}
	return expect(d, ']')
}
