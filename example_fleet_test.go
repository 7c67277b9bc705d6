package coppice_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/fleet"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/server"
)

// Example_fleet is a worker of a fleet: it serves a model, and tells routers what its cache
// holds. TestEmbedding runs it.
func Example_fleet() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg := coppice.Config{Scheduler: scheduler.Config{Events: true}}
	m, err := local.Open("path/to/model", local.Options{Node: cfg})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	w, err := fleet.Join(m.Node, fleet.Config{Publish: []string{"zmq://127.0.0.1:0"}, Addr: l.Addr(), Models: []string{"mine"}})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	s, err := server.New(server.Config{Node: m.Node, Model: "mine", Template: m.Template(), Card: w.Card(), Events: w.Metrics})
	if err != nil {
		log.Fatal(err)
	}
	context.AfterFunc(ctx, func() { w.Leave(); s.Shutdown(context.Background()) })
	fmt.Println(w)
	log.Println(s.Serve(l))
}
