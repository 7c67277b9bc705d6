// Package members owns who is in a fleet: it probes workers, reads their cards, has them
// register over NATS, follows their events and fetches their tokenizer. It knows no request
// and chooses no worker.
//
// Each worker has one goroutine, its keeper. What becomes of a worker is a [Change], a value
// that Config.Apply takes on the keeper's goroutine. What is known of all workers is a
// [Snapshot], which is read without a lock.
//
//	f, err := members.New(members.Config{BlockTokens: 16, MaxWorkers: 64, Sink: index, Apply: apply})
//	err = f.SetWorkers([]members.Worker{{URL: "http://10.0.0.1:8080"}})
//	ready := f.Snapshot().Ready
//	defer f.Close()
package members
