// Package hub owns models on this machine's disk: the cache directory that Hugging Face's
// tools share, and downloads into it from a hub that speaks Hugging Face's API. It never
// opens a model, and only Pull uses the network.
//
// A Hub's methods may be called from any goroutine, and several processes may use one
// directory: a lock file per blob keeps two from writing it at once.
//
//	h, err := hub.New(hub.Config{Dir: filepath.Join(home, ".cache/huggingface/hub")})
//	ref, err := hub.ParseRef("hf:HuggingFaceTB/SmolLM2-135M-Instruct-GGUF:Q4_K_M", "")
//	found, err := h.Find(ref)
//	if errors.Is(err, fs.ErrNotExist) {
//		found, err = h.Pull(ctx, ref, nil)
//	}
//	m, err := model.Open(found.Path)
//
// The layout is that of huggingface_hub (file_download.py, constants.py): a directory
// models--OWNER--NAME has blobs/HASH with the contents, snapshots/COMMIT/PATH as links to
// them, and refs/REVISION with the commit of that revision. A blob's name is the SHA-256
// of a file in large-file storage, and git's SHA-1 of other files.
package hub
