// Package tool owns what a program needs so that a model can call its functions: Go functions with
// the JSON schema of their arguments, the form in which a model writes calls, and the calls of an
// output. It never runs a model, and never calls a function by itself.
//
//	weather := tool.New("weather", "The weather in a city.", func(ctx context.Context, in struct {
//		City string `json:"city" jsonschema:"name of the city"`
//	}) (string, error) {
//		return "sunny in " + in.City, nil
//	})
//	calling := tool.CallingOf(node.Template(), node.Tokenizer(), nil, chat.AutoTools)
//	reply := calling.Read(output, []tool.Tool{weather}, tool.Reading{})
//	for _, c := range reply.Calls {
//		fmt.Println(weather.Do(ctx, c.Arguments))
//	}
//
// The loop around these is Run of a coppice.Session, which takes them as a Set. Values are not changed after they were made;
// any number of goroutines may use them.
package tool
