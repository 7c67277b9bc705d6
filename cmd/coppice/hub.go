package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// hubDirs returns the directory of the hub's settings and that of the cache by the rules of
// huggingface_hub (constants.py): HF_HUB_CACHE, else hub in HF_HOME, else
// XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. It reads no file.
func hubDirs() (home, cache string, err error) {
	home = cmp.Or(expandedEnv("HF_HOME"), filepath.Join(cmp.Or(expandedEnv("XDG_CACHE_HOME"), expanded("~/.cache")), "huggingface"))
	cache = cmp.Or(expandedEnv("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))
	if strings.HasPrefix(cache, "~") {
		return "", "", errors.New("no directory for models: this user has no home directory; set HF_HOME")
	}
	cache, err = filepath.Abs(cache)
	return home, cache, err
}

// openHub opens the hub and the cache directory named by the environment; see hubDirs.
func openHub() (*hub.Hub, error) {
	home, dir, err := hubDirs()
	if err != nil {
		return nil, err
	}
	token := firstEnv("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
	if token == "" {
		data, err := os.ReadFile(cmp.Or(expandedEnv("HF_TOKEN_PATH"), filepath.Join(home, "token")))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the hub's token: %w", err)
		}
		token = string(data)
	}
	h, err := hub.New(hub.Config{Dir: dir, Endpoint: firstEnv("HF_ENDPOINT"), Token: strings.TrimSpace(token)})
	if err != nil {
		return nil, fmt.Errorf("%w (HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_CACHE set these)", err)
	}
	return h, nil
}

// firstEnv returns the value of the first variable that is not empty.
func firstEnv(names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return v
		}
	}
	return ""
}

// expandedEnv returns the value of firstEnv as a path: it expands a leading ~ and variables.
func expandedEnv(names ...string) string { return expanded(os.ExpandEnv(firstEnv(names...))) }

// expanded replaces a leading ~ of a path by the user's home directory, if the user has one.
func expanded(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, path[1:])
		}
	}
	return path
}

// offline reports whether HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE, forbids requests to the
// hub.
func offline() bool {
	v := firstEnv("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
	on, err := strconv.ParseBool(strings.ToLower(v))
	return on || err != nil && (strings.EqualFold(v, "yes") || strings.EqualFold(v, "on"))
}

// modelPath is the value of --model: a path, or "hf:" and a model of the hub.
type modelPath string

// find returns the absolute path of the model. A model of the hub is taken from the cache,
// or pulled.
func (p modelPath) find(ctx context.Context) (string, error) {
	text := string(p)
	if !strings.HasPrefix(text, hub.Prefix) {
		path := kong.ExpandPath(text)
		if err := p.missing(path); err != nil {
			return "", err
		}
		return path, nil
	}
	h, err := openHub()
	if err != nil {
		return "", err
	}
	defer h.Close()
	ref, err := hub.ParseRef(text, h.Endpoint())
	if err != nil {
		return "", fmt.Errorf("--model: %w", err)
	}
	m, err := h.Find(ref)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(terminal.Err(), "coppice: %v is not in %s, pulling it\n", ref, h.Dir())
		m, err = pull(ctx, h, ref)
	}
	if err != nil {
		return "", err
	}
	return m.Path, nil
}

// missing returns advice if there is nothing at a path that p names, or a directory without a model.
func (p modelPath) missing(path string) error {
	text := string(p)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && hub.IsRepo(strings.TrimPrefix(text, "./")):
		return fmt.Errorf("there is no file or directory %s; if you mean the model of that name on the hub, give --model %s%s", text, hub.Prefix, text)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file or directory %s; --model takes a GGUF file, a Hugging Face model directory or hf:owner/name, "+
			"which downloads one; coppice models lists those that are here", text)
	case err != nil || !info.IsDir():
		return nil // opening it says more
	}
	for _, name := range []string{"config.json", "tokenizer.json"} { // a router needs no config
		if _, err := os.Stat(filepath.Join(path, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	files, err := fs.Glob(os.DirFS(path), "*.gguf")
	files = slices.DeleteFunc(files, func(name string) bool { return laterPart.MatchString(name) && !strings.Contains(name, "-00001-of-") })
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s has neither config.json nor tokenizer.json, so it is no Hugging Face model directory; --model also takes a GGUF file, or hf:owner/name, which downloads one", text)
	}
	if most := 3; len(files) > most {
		files = append(files[:most], "…")
	}
	return fmt.Errorf("%s has neither config.json nor tokenizer.json, so it is no Hugging Face model directory; give one of its GGUF files: %s", text, strings.Join(files, ", "))
}

// laterPart matches the name of a part of a split GGUF file that is not its first, which names the model.
var laterPart = regexp.MustCompile(`-\d{5}-of-\d{5}\.gguf$`)

// pull downloads a model and shows a progress bar. It fails if offline.
func pull(ctx context.Context, h *hub.Hub, ref hub.Ref) (*hub.Model, error) {
	if offline() {
		return nil, fmt.Errorf("%v can't be downloaded: HF_HUB_OFFLINE is set", ref)
	}
	advance, finish := bytesBar(ref.Repo)
	defer finish()
	return h.Pull(ctx, ref, func(done, total int64) { advance(int(done), int(total)) })
}

var snapshotForm = regexp.MustCompile(`[/\\]models--([^/\\]+)[/\\]snapshots[/\\][0-9a-f]{40}$`)

// modelName returns the name of the model at a path: the name of the file or directory, or for a
// directory in the cache of models the name of its repository.
func modelName(path string) string {
	path = filepath.Clean(path)
	if m := snapshotForm.FindStringSubmatch(path); m != nil {
		return strings.Replace(m[1], "--", "/", 1)
	}
	return strings.TrimSpace(strings.TrimSuffix(filepath.Base(path), ".gguf"))
}
