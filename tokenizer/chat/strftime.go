package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftimeAt implements strftime_now at a fixed time.
func strftimeAt(now time.Time) function {
	return func(r *run, a *arguments) any {
		a.of = "strftime_now"
		format := asString(a.of, a.need(0, "format"))
		a.done()
		r.spendText(strftimeGrowth * len(format))
		return strftime(now, format)
	}
}

// strftimeGrowth is how many times longer a time may be than its format: "%c" has 24 characters.
const strftimeGrowth = 12

// layouts maps Python's directives in the C locale to layouts of package time.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'z': "-0700", 'Z': "MST", 'j': "002",
	'e': "_2", 'f': "000000", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

func strftime(now time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if format[i] == '-' && i+1 < len(format) { // glibc: without leading zeros
			i++
			if layout, ok := layouts[format[i]]; ok && strings.IndexByte("mdHIMSjy", format[i]) >= 0 {
				s := strings.TrimLeft(now.Format(layout), "0")
				if s == "" {
					s = "0"
				}
				b.WriteString(s)
				continue
			}
		}
		switch c := format[i]; c {
		case '%':
			b.WriteByte('%')
		case 'f':
			fmt.Fprintf(&b, "%06d", now.Nanosecond()/1000)
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'u':
			fmt.Fprint(&b, (int(now.Weekday())+6)%7+1)
		case 'w':
			fmt.Fprint(&b, int(now.Weekday()))
		case 's':
			fmt.Fprint(&b, now.Unix())
		default:
			layout, ok := layouts[c]
			if !ok {
				fail("strftime_now does not know %%%c", c)
			}
			b.WriteString(now.Format(layout))
		}
	}
	return b.String()
}
