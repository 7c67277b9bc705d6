// Package jsonbody owns the reading of JSON bodies of requests: member by member, strictly for a server,
// leniently for a proxy. It knows no API and never keeps a whole body as Go values: a caller reads the members
// that it knows with the methods of a [Decoder], and each fault names the member by its path.
//
//	func decode(body []byte) (model string, err error) {
//		defer bail.Recover(&err) // a *Fault
//		var d jsonbody.Decoder
//		d.Fields(jsonbody.Parse(body), "", map[string]func(jsonbody.Value){
//			"model": func(v jsonbody.Value) { model = d.Text(v) },
//		})
//		return model, nil
//	}
//
// null counts as absent. Of two members with the same name the last counts. Unknown members are faults, unless
// their names are known to be harmless. Values are not safe for concurrent use.
package jsonbody
