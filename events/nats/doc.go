// Package nats owns the event plane over NATS, for fleets: workers and routers
// know the servers and not each other. It never looks into a payload and keeps no
// history.
//
// Batches go to <prefix>.<worker>.<dp>, with epoch and sequence number in the
// header and vLLM's payload, into a JetStream stream, which keeps them for a reader
// that is slow. The past beyond that, and what was sent while a reader was cut off,
// comes from the publisher itself, asked at <prefix>-ask.<worker>.<dp>: what a reader has seen,
// the publisher can replay, whatever became of the stream. The stream is created
// by whoever comes first, and again after a server has lost it.
//
// NATS does not tell that a worker has died: set SubscriberConfig.Silence above
// the publisher's Heartbeat.
//
// Workers register there too: an Announcer says every second at <prefix>-here.<worker>
// what a worker says of itself, and at once when a Watcher asks at <prefix>-who. That is core
// NATS; nothing of it is stored.
//
//	a, err := nats.NewAnnouncer(nats.AnnouncerConfig{Config: nats.Config{URL: url, Worker: "w1"}, Payload: card})
//	...
//	w, err := nats.NewWatcher(nats.WatcherConfig{Config: nats.Config{URL: url}})
//	for change := range w.Changes() {
//
// Sender, Source, Announcer and Watcher wait in Close for every goroutine of theirs.
package nats
