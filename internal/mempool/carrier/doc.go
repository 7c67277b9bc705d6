// Package carrier carries out the moves that package mempool/tiering decides on. It owns
// the stores of the tiers below the device and the host buffers between them and the
// device. It never decides what moves, and never touches a page of the device but by a move.
//
// A move goes through a buffer of host memory that the backend gave (engine.Mover.HostAlloc):
//
//	write from the device   device -> buffer (Copied), buffer -> store
//	write between tiers     store -> buffer, buffer -> store
//	read                    store -> buffer, buffer -> device
//
// So a store that hangs keeps a buffer from use, and never a page of the device.
//
// The goroutine that submits batches to the backend calls Begin, Cancel, Poll and Close;
// Ready and Metrics may be called from any. Each move that Begin was given ends once, by
// Poll, whatever its store and device do; only a device that neither ends a move nor fails
// is waited for.
//
//	c, err := carrier.Open(carrier.Config{Backend: backend, Layout: layout, Stores: stores, Buffers: 32})
//	c.Begin(&move)               // before the batch of its plan is submitted
//	<-c.Ready()
//	ended = c.Poll(ended[:0])
//	err = c.Close()              // before the backend's
package carrier
