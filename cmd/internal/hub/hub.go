package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Hub is a cache directory, and a client of the hub that it is filled from.
type Hub struct {
	cfg  Config
	http *http.Client

	maxListing, maxFiles int // tests lower them
}

// New makes a Hub. It touches neither disk nor network. Errors are those of Validate.
func New(cfg Config) (*Hub, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, maxListing: maxListing, maxFiles: maxFiles}
	h.http = h.newClient()
	return h, nil
}

// Endpoint returns the hub's URL.
func (h *Hub) Endpoint() string { return h.cfg.Endpoint }

// Dir returns the cache directory.
func (h *Hub) Dir() string { return h.cfg.Dir }

// Model is a model in the cache.
type Model struct {
	Ref      Ref    // identifies exactly this model: File is a file's path, or "" for a directory
	Path     string // argument for model.Open: a GGUF file, the first part of a split one, or a directory
	Bytes    int64  // size of its files
	Modified time.Time
}

// Quantisation returns the quantisation in the file's name; "" for a directory.
func (m *Model) Quantisation() string { return Quantisation(m.Ref.File) }

// Find finds the model that ref selects in the cache, without using the network. Errors wrap
// fs.ErrNotExist if the model is not there completely, so that a pull may help, and ErrChoice if
// ref matches several files.
func (h *Hub) Find(ref Ref) (*Model, error) {
	commit, files, err := h.snapshot(ref.Repo, ref.Revision)
	if err != nil {
		return nil, fmt.Errorf("hub: %v is not in %s: %w", ref, h.cfg.Dir, err)
	}
	c, err := choose(files, ref.File)
	if err != nil {
		if errors.Is(err, ErrChoice) {
			return nil, err
		}
		return nil, fmt.Errorf("hub: %v is not in %s: %w: %w", ref, h.cfg.Dir, fs.ErrNotExist, err)
	}
	return h.model(ref, commit, c), nil
}

// model returns the Model for the choice c, whose files are in the cache.
func (h *Hub) model(ref Ref, commit string, c *choice) *Model {
	m := &Model{Ref: Ref{ref.Repo, ref.Revision, c.name}, Bytes: c.bytes()}
	m.Path = filepath.Join(h.repoDir(ref.Repo), "snapshots", commit, filepath.FromSlash(c.name))
	at := m.Path
	if c.name == "" {
		at = filepath.Join(m.Path, "config.json")
	}
	if info, err := os.Stat(at); err == nil {
		m.Modified = info.ModTime()
	}
	return m
}

// Models lists the complete models in the cache at the pulled revisions, ordered by repository,
// revision and file. Other commits, left by older pulls, are not listed.
func (h *Hub) Models() ([]*Model, error) {
	entries, err := os.ReadDir(h.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var all []*Model
	for _, e := range entries {
		repo, ok := strings.CutPrefix(e.Name(), "models--")
		if repo = strings.Replace(repo, "--", "/", 1); !ok || !IsRepo(repo) {
			continue // data sets and spaces, or models without an owner
		}
		for _, revision := range h.revisions(repo) {
			commit, files, err := h.snapshot(repo, revision)
			if err != nil {
				continue // no file of the commit was kept
			}
			found, _ := choices(files)
			for _, c := range found {
				all = append(all, h.model(Ref{Repo: repo, Revision: revision}, commit, c))
			}
		}
	}
	return all, nil
}

// revisions returns the revisions of repo that are in refs, "main" first and the others
// ascending.
func (h *Hub) revisions(repo string) []string {
	root := filepath.Join(h.repoDir(repo), "refs")
	var found []string
	filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(root, p)
			if name := filepath.ToSlash(rel); revisionForm.MatchString(name) && !strings.HasSuffix(name, tmpSuffix) {
				found = append(found, name)
			}
		}
		return nil
	})
	if at := slices.Index(found, "main"); at > 0 {
		found = slices.Insert(slices.Delete(found, at, at+1), 0, "main")
	}
	return found
}

// repoDir returns the directory of a repository.
func (h *Hub) repoDir(repo string) string {
	return filepath.Join(h.cfg.Dir, "models--"+strings.ReplaceAll(repo, "/", "--"))
}

var commitForm = regexp.MustCompile(`^[0-9a-f]{40}$`)

// commitOf returns the commit that revision had when it was last pulled into dir, the directory
// of a repository. A revision that is a commit is returned as it is. The error wraps
// fs.ErrNotExist if the revision was never pulled.
func (h *Hub) commitOf(dir, revision string) (string, error) {
	if commitForm.MatchString(revision) {
		return revision, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, "refs", filepath.FromSlash(revision)))
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(data))
	if !commitForm.MatchString(commit) {
		return "", fmt.Errorf("refs/%s holds %.60q, want a commit: %w", revision, commit, fs.ErrNotExist)
	}
	return commit, nil
}

// snapshot lists the files in the snapshot of a repository's revision. It leaves out files whose blobs
// are missing.
func (h *Hub) snapshot(repo, revision string) (commit string, files []file, err error) {
	dir := h.repoDir(repo)
	if commit, err = h.commitOf(dir, revision); err != nil {
		return "", nil, err
	}
	root := filepath.Join(dir, "snapshots", commit)
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(p) // of the link's target
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		files = append(files, file{path: filepath.ToSlash(rel), size: info.Size()})
		return err
	})
	return commit, files, err
}

// Config configures a Hub: the cache directory and the access to the hub.
type Config struct {
	// Dir is the cache directory. It need not exist.
	Dir string

	// Endpoint is the hub's address. Default: Hugging Face's hub.
	Endpoint string `default:"https://huggingface.co"`

	// Token is sent to the endpoint only. "": none is sent.
	Token string

	// Attempts is the number of consecutive requests that may fail for a temporary reason: status
	// 408, 429 or 5xx, or in a download also a lost connection. A request that receives bytes of
	// a file does not count. Default: 5.
	Attempts int `default:"5" min:"1"`

	// Wait is the time before the second attempt. Before each further attempt it doubles, up to 2
	// minutes. Default: 1s.
	Wait time.Duration `default:"1s" min:"0s"`

	// Stall is the time without a byte after which a download counts as lost, and the list of a
	// repository's files too. The list may take ten times as long in all. Default: 30s.
	Stall time.Duration `default:"30s" min:"0s"`
}

// maxWait bounds the time between attempts, and the time that Retry-After may request.
const maxWait = 2 * time.Minute

// WithDefaults returns a copy with defaults for the zero fields.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	c.Endpoint = strings.TrimRight(c.Endpoint, "/")
	return c
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	faults := bounds.Faults{Owner: "hub: "}
	faults.Add(bounds.Check("hub", c))
	faults.If(c.Dir == "", "Dir is empty, want the cache directory")
	u, err := url.Parse(c.Endpoint)
	faults.If(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil,
		"Endpoint is no URL like https://huggingface.co") // without the value: it may hold a secret
	faults.If(strings.ContainsAny(c.Token, "\r\n\x00"), "Token has line breaks")
	return faults.Err()
}
