package storetest

import "github.com/coppice-llm/coppice/internal/mempool/blockio"

// Injector plants faults at the calls of a store, for tests of what drives stores.
type Injector = blockio.Injector

// Point and Fault are where and what an Injector plants.
type (
	Point = blockio.Point
	Fault = blockio.Fault
)

// Calls that an Injector can have fail.
const (
	AtRead  = blockio.Read
	AtWrite = blockio.Write
)

// Faults are those that end a call, or spoil it in silence.
func Faults() []Fault {
	return []Fault{blockio.ShortRead, blockio.FlipBit, blockio.NoSpace, blockio.IOError, blockio.NoEntry}
}

// Slow has a call wait until Injector.Clear.
const Slow = blockio.Slow
