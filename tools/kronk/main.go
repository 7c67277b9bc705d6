// Command kronk serves a GGUF file with Kronk's SDK at /v1/chat/completions, so that coppice bench serve can measure Kronk with
// libraries of llama.cpp that are at hand (docs/compare.md). Kronk's own server needs none of this: it downloads its libraries and takes
// the same settings from model_config.yaml.
//
//	cd tools/kronk && go build -o kronk . && LD_LIBRARY_PATH=LIBS ./kronk -libs LIBS -model FILE.gguf
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ardanlabs/kronk/sdk/kronk"
	"github.com/ardanlabs/kronk/sdk/kronk/model"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8082", "address to listen at")
	libs := flag.String("libs", "", "directory with libllama.so and libmtmd.so")
	file := flag.String("model", "", "GGUF file")
	threads := flag.Int("threads", 2, "threads")
	slots := flag.Int("slots", 8, "requests that run together (Kronk's nseq-max)")
	window := flag.Int("context", 4096, "tokens of each slot (Kronk's context-window)")
	sessions := flag.Int("sessions", 16, "conversations whose state is kept (Kronk's imc-session-capacity)")
	flag.Parse()
	if err := serve(*addr, *libs, model.WithModelFiles([]string{*file}), model.WithNThreads(*threads), model.WithNThreadsBatch(*threads),
		model.WithNSeqMax(*slots), model.WithContextWindow(*window), model.WithQueueDepth(2), model.WithIMCSessionCapacity(*sessions)); err != nil {
		log.Fatal(err)
	}
}

// serve loads a model and answers requests until SIGINT or SIGTERM.
func serve(addr, libs string, options ...model.Option) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := kronk.Init(kronk.WithLibPath(libs)); err != nil {
		return err
	}
	k, err := kronk.New(options...)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": []map[string]string{{"id": k.ModelID(), "object": "model"}}})
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { chat(k, w, r) })
	server := &http.Server{Addr: addr, Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Printf("Kronk serves %s at http://%s: %v", k.ModelID(), addr, k.ModelConfig())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server.Shutdown(end)
	return k.Unload(end)
}

// chat answers a request by the SDK's own handler.
func chat(k *kronk.Kronk, w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	d := json.NewDecoder(r.Body)
	d.UseNumber()
	if err := d.Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := k.ChatStreamingHTTP(r.Context(), w, model.MapToModelD(body)); err != nil {
		log.Print(err)
		if !strings.Contains(w.Header().Get("Content-Type"), "event-stream") {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}
