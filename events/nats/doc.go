// Package nats owns the event plane over NATS, for fleets: workers and routers need to know only
// the servers. It never looks into a payload and keeps no history.
//
// It uses core NATS only: a server needs no JetStream, and stores nothing. Batches go to
// <prefix>.<worker>.<dp>, with epoch and sequence number in the header and vLLM's payload. If a
// reader missed batches because it was slow, disconnected or not started yet, it asks the
// publisher at <prefix>-ask.<worker>.<dp> for a replay or a snapshot.
//
// NATS does not report that a worker has died: set SubscriberConfig.Silence above the
// publisher's Heartbeat.
//
// Workers register there too: an Announcer publishes a worker's description to
// <prefix>-here.<worker> every second, and at once when a Watcher asks at <prefix>-who.
//
//	a, err := nats.NewAnnouncer(nats.AnnouncerConfig{Config: nats.Config{URL: url, Worker: "w1"}, Payload: card})
//	...
//	w, err := nats.NewWatcher(nats.WatcherConfig{Config: nats.Config{URL: url}})
//	for change := range w.Changes() {
//
// Close of Sender, Source, Announcer and Watcher waits for all their goroutines.
package nats
