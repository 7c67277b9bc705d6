package hub

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// Ref names a model: a repository, a revision, and a selection of its files.
type Ref struct {
	Repo     string // "owner/name"
	Revision string // branch, tag or commit; "main" if not given
	File     string // path, quantisation ("Q4_K_M") or pattern; "": Pull chooses
}

// Prefix begins a reference to a model where the path of a file may be given instead.
const Prefix = "hf:"

// ErrRef is wrapped by errors about malformed references.
var ErrRef = errors.New("hub: no reference to a model")

var (
	repoForm     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	revisionForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}$`)
)

// IsRepo reports whether s has the form of "owner/name".
func IsRepo(s string) bool {
	return repoForm.MatchString(s) && !strings.Contains(s, "--") && !strings.Contains(s, "..") && !strings.HasSuffix(s, ".git")
}

// ParseRef parses owner/name[@revision][:file], with or without the prefix "hf:", or the URL of a
// model, a revision or a file at endpoint, "" for Hugging Face's hub. Errors wrap ErrRef.
func ParseRef(s, endpoint string) (Ref, error) {
	r, err := parseRef(s, Config{Endpoint: endpoint}.WithDefaults().Endpoint)
	if err != nil {
		return Ref{}, err
	}
	switch {
	case !IsRepo(r.Repo):
		return Ref{}, fmt.Errorf("%w: %.120q, want owner/name or owner/name:file", ErrRef, s)
	case !revisionForm.MatchString(r.Revision) || strings.Contains(r.Revision, ".."):
		return Ref{}, fmt.Errorf("%w: %.120q: revision %.80q can't be one", ErrRef, s, r.Revision)
	}
	return r, nil
}

func parseRef(s, endpoint string) (Ref, error) {
	if strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") {
		return parseURL(s, endpoint)
	}
	repo, file, named := strings.Cut(strings.TrimPrefix(s, Prefix), ":")
	if named && file == "" {
		return Ref{}, fmt.Errorf("%w: %.120q: nothing follows the colon", ErrRef, s)
	}
	repo, revision, found := strings.Cut(repo, "@")
	if !found {
		revision = "main"
	}
	return Ref{repo, revision, file}, nil
}

// parseURL parses ENDPOINT/owner/name, optionally with /tree/REVISION, or with
// /resolve/REVISION/PATH or /blob/REVISION/PATH.
func parseURL(s, endpoint string) (Ref, error) {
	rest, ours := strings.CutPrefix(s, endpoint+"/")
	if !ours {
		return Ref{}, fmt.Errorf("%w: %.120q is not at the hub %s; HF_ENDPOINT sets another", ErrRef, s, endpoint)
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	for i := range parts {
		part, err := url.PathUnescape(parts[i])
		if err != nil {
			return Ref{}, fmt.Errorf("%w: %.120q: %w", ErrRef, s, err)
		}
		parts[i] = part
	}
	if len(parts) < 2 {
		return Ref{}, fmt.Errorf("%w: %.120q names no model", ErrRef, s)
	}
	r := Ref{Repo: parts[0] + "/" + parts[1], Revision: "main"}
	switch {
	case len(parts) == 2:
	case len(parts) == 4 && parts[2] == "tree":
		r.Revision = parts[3]
	case len(parts) >= 5 && (parts[2] == "resolve" || parts[2] == "blob" || parts[2] == "raw"):
		r.Revision, r.File = parts[3], path.Join(parts[4:]...)
	default:
		return Ref{}, fmt.Errorf("%w: %.120q: want %s/owner/name or a file's address", ErrRef, s, endpoint)
	}
	return r, nil
}

// String returns the form that ParseRef parses, with the prefix "hf:".
func (r Ref) String() string {
	s := Prefix + r.Repo
	if r.Revision != "main" && r.Revision != "" {
		s += "@" + r.Revision
	}
	if r.File != "" {
		s += ":" + r.File
	}
	return s
}
