package router

import "github.com/coppice-llm/coppice/internal/enum"

// Order is the order of waiting requests of equal priority. Names and formulas are Dynamo's.
// Requests that the formula ranks equal go in the order of arrival.
type Order uint8

// The orders.
const (
	FCFS Order = iota // first come, first served
	LCFS              // last come, first served
	WSPT              // fewest tokens to compute at the best worker (weighted shortest processing time)
)

var orderNames = enum.New[Order]("router", "order", "fcfs", "lcfs", "wspt")

func (o Order) String() string { return orderNames.Name(o) }

// UnmarshalText reads an order's name.
func (o *Order) UnmarshalText(text []byte) error { return orderNames.Read(o, text) }
