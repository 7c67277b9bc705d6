// Package nats owns the event plane over NATS, for fleets: workers and routers
// know the servers and not each other. It never looks into a payload and keeps no
// history.
//
// All of it is core NATS: a server needs no JetStream, and stores nothing. Batches go to <prefix>.<worker>.<dp>,
// with epoch and sequence number in the header and vLLM's payload. What a reader missed, as it
// was slow, cut off or not there yet, the publisher itself replays, asked at <prefix>-ask.<worker>.<dp>, or
// gives a snapshot of all.
//
// NATS does not tell that a worker has died: set SubscriberConfig.Silence above
// the publisher's Heartbeat.
//
// Workers register there too: an Announcer says every second at <prefix>-here.<worker>
// what a worker says of itself, and at once when a Watcher asks at <prefix>-who.
//
//	a, err := nats.NewAnnouncer(nats.AnnouncerConfig{Config: nats.Config{URL: url, Worker: "w1"}, Payload: card})
//	...
//	w, err := nats.NewWatcher(nats.WatcherConfig{Config: nats.Config{URL: url}})
//	for change := range w.Changes() {
//
// Sender, Source, Announcer and Watcher wait in Close for every goroutine of theirs.
package nats
