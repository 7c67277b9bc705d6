package router

import "github.com/coppice-llm/coppice/internal/enum"

// Order says which waiting request of equal priority goes first. Names and
// formulas are Dynamo's; equal ones go as they came.
type Order uint8

// The orders.
const (
	FCFS Order = iota // first come, first served
	LCFS              // last come, first served
	WSPT              // the fewest tokens that the best worker must compute
)

var orderNames = enum.New[Order]("router", "order", "fcfs", "lcfs", "wspt")

func (o Order) String() string { return orderNames.Name(o) }

// UnmarshalText reads an order's name.
func (o *Order) UnmarshalText(text []byte) error { return orderNames.Read(o, text) }
