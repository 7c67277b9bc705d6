// Package budget owns the count of the bytes that open requests keep in memory, and bounds them. It
// allocates nothing for them itself and frees nothing.
//
//	b := budget.New(256 << 20)
//	var a budget.Account
//	if err := a.Open(ctx, b, bodyBytes); err != nil { // waits for room
//		return err
//	}
//	defer a.Close()
//	err := a.Add(textBytes) // before the text is made; does not wait
//
// Only Open waits, and an account holds nothing then. So accounts that wait for each other can't
// block each other. Add takes room before all accounts that wait in Open: an open request
// can end, and makes room then. A quarter of the budget is kept for Add.
package budget
