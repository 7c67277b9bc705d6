package storetest

import "github.com/coppice-llm/coppice/mempool/internal/blockio"

// Injector plants faults in the calls of a store, for tests of code that drives stores.
type Injector = blockio.Injector

// Point is a kind of call, Fault the fault that an Injector plants there.
type (
	Point = blockio.Point
	Fault = blockio.Fault
)

// Kinds of calls in which an Injector can plant faults.
const (
	AtRead  = blockio.Read
	AtWrite = blockio.Write
)

// Points returns all kinds of calls.
func Points() []Point { return blockio.Points() }

// Faults returns the faults that end a call with an error or silently spoil its bytes.
func Faults() []Fault {
	return []Fault{blockio.ShortRead, blockio.FlipBit, blockio.NoSpace, blockio.IOError, blockio.NoEntry}
}

// Slow makes a call wait until Injector.Clear.
const Slow = blockio.Slow
