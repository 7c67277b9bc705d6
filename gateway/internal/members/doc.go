// Package members owns the list of a fleet's workers: it probes them, reads their cards, lets
// them register over NATS, follows their events and fetches their tokenizer. It knows no
// requests and chooses no worker.
//
// Each worker has one goroutine, its keeper. A change of a worker is a call of Config.Router
// on the keeper's goroutine. A [Summary] describes all workers and is read
// without a lock.
//
//	f, err := members.New(members.Config{BlockTokens: 16, MaxWorkers: 64, Sink: index, Router: dispatcher})
//	err = f.SetWorkers([]members.WorkerConfig{{URL: "http://10.0.0.1:8080"}})
//	ready := f.Summary().Ready
//	defer f.Close()
package members
