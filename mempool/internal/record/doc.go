// Package record owns the form in which stores keep an extent in a file or a slot: a header that names it and its
// identity, checksums, and with a Sealer encryption and authentication. It never reads or writes a file.
//
//	f := record.FormatOf(&identity, nil)
//	err := f.Encode(buf, &record.Record{Extent: x, …}) // the pages are in buf after f.HeaderBytes
//	r, pages, err := f.Decode(buf)
package record
