// Package carrier carries out the moves of KV between the device and the stores below it that package mempool/tiering
// decides on. It owns the stores and the host buffers between them and the device. It never decides which extents move,
// and touches the device's pages only through the backend's moves.
//
// A move goes through a buffer of host memory that the backend allocated (engine.Mover.HostAlloc):
//
//	write from the device   device -> buffer (Copied), buffer -> store
//	write between tiers     store -> buffer, buffer -> store
//	read                    store -> buffer, buffer -> device
//
// So a store that hangs occupies a buffer, but never a page of the device.
//
// Ready and Metrics of a Carrier may be called from any goroutine, all other methods only from the one that
// submits batches to the backend. Poll reports the end of each move exactly once, even if its
// store hangs. Only a device that neither ends a copy nor fails delays the end.
//
// The book of moves (package tiering) sets their deadlines. The carrier knows of a move only which
// operation it waits for. It alone watches deadlines, of moves and of probes, and it alone cancels
// operations of stores, which know no deadline.
//
//	layout, tiers, buffers := carrier.Budget(stores)
//	c, err := carrier.New(carrier.Config{Backend: backend, Layout: layout, Stores: stores, Buffers: buffers})
//	c.Begin(&move)               // before submitting the batch of the same plan
//	<-c.Ready()
//	ended = c.Poll(ended[:0])
//	err = c.Close(until)         // before the backend's
package carrier
