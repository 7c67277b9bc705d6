package cpu

import "testing"

// TestUnits checks that the units of a product cover each row of each panel exactly once, and
// that all threads get the same number of units where panels are cut.
func TestUnits(t *testing.T) {
	for threads := 1; threads <= 5; threads++ {
		for panels := 1; panels <= 12; panels++ {
			for _, rows := range []int{1, 2, 7, 8, 9, 30, 64, 95, 96, 97, 200} {
				p := units{panels, (rows + spanRows - 1) / spanRows, threads, rows}
				done := make([]int, panels*rows)
				for u := range p.count() {
					panel, lo, hi := p.at(u)
					if lo%blockRows != 0 && lo < hi || lo < 0 || hi > rows {
						t.Fatalf("%+v: unit %d is the rows [%d, %d)", p, u, lo, hi)
					}
					for r := lo; r < hi; r++ {
						done[panel*rows+r]++
					}
				}
				for i, n := range done {
					if n != 1 {
						t.Fatalf("%+v: row %d of panel %d is computed %d times", p, i%rows, i/rows, n)
					}
				}
				if _, cut := p.each(); cut > 0 && p.count()%threads != 0 {
					t.Errorf("%+v: %d units", p, p.count())
				}
			}
		}
	}
}
