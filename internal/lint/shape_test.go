package lint

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Bounds of functions and types, so that a reader can keep one in mind.
const (
	maxFuncLines = 70
	maxFields    = 20
	maxMethods   = 60
)

// exception is a function or type beyond the bounds, with its size and the reason why it stands so.
type exception struct {
	size int
	why  string
}

// large lists the functions and types beyond these bounds. Entries may shrink and be removed, but not grow or be
// added: split the function, or give part of the struct a type of its own that is a named field.
var large = map[string]exception{
	"bench fields schedPlay":                            {23, "the state of one replay, which one function drives"},
	"engine/cpu fields step":                            {37, "buffers of one step, each a matrix of the transformer, and the kernels that it calls by name"},
	"engine/cuda fields Backend":                        {21, "the device, its queues and its result memory have one owner"},
	"engine/cuda fields device":                         {21, "one device, its memory, and what is on it after the queued work"},
	"engine/cuda fields launcher":                       {24, "each field is one argument that kernels share"},
	"engine/cuda fields plan":                           {43, "one step's arrays, as the kernels read them"},
	"engine/cuda fields planner":                        {72, "a plan, and the scratch that makes the next one without allocation"},
	"engine/cuda fields uploader":                       {28, "one step's arrays on their way to the device"},
	"events fields follower":                            {39, "one subscriber: its log, its request for a snapshot and its timers; to be made of named parts"},
	"grammar fields Grammar":                            {36, "a compiled grammar: tables, one field each"},
	"grammar fields stepper":                            {22, "a grammar's tables and one position in them"},
	"grammar fields walker":                             {43, "a grammar's tables and the scratch of a walk over a vocabulary"},
	"mempool/internal/dirmem fields Store":              {32, "a store is its queue of operations (ops) and its directory"},
	"mempool/internal/slotted fields Store":             {26, "a store is its queue of operations (ops) and its slots"},
	"mempool/storetest methods rig":                     {66, "each check of the suite is one method"},
	"mempool/tiering methods Book":                      {84, "what each tier has and how far each move is, in one hand"},
	"conversation fields Params":                        {30, "what a request may ask of a node, in all APIs"},
	"server fields call":                                {21, "one HTTP request, in the order of its life; parts with a name of their own are structs"},
	"server/internal/answer fields Stream":              {21, "the state of an answer, and of its stream"},
	"conversation fields Turn":                          {37, "likewise, with the messages"},
	"ollama fields Chat":                                {39, "fields of the wire, which embeds the turn"},
	"ollama fields Embed":                               {34, "fields of the wire, which embeds the parameters"},
	"ollama fields Generate":                            {42, "fields of the wire, which embeds the turn"},
	"openai fields Chat":                                {42, "fields of the wire, which embeds the turn"},
	"openai fields Embeddings":                          {35, "likewise"},
	"openai fields Completion":                          {37, "fields of the wire, which embeds the parameters"},
	"openai fields peeking":                             {66, "fields of the wire, and the decoder that fills them"},
	"openai fields reading":                             {60, "fields of the wire, and the decoder that fills them"},
	"openai/responses fields Ask":                       {42, "fields of the wire, which embeds the turn"},
	"openai methods peeking":                            {64, "each field of the wire has a method that reads it"},
	"openai methods reading":                            {63, "each field of the wire has a method that reads it"},
	"scheduler methods Scheduler":                       {84, "the inputs and questions of a scheduler: requests, pages, moves, tiers, sessions and their parks; its parts have the rest"},
	"scheduler/schedtest fields load":                   {21, "what a world's requests are drawn from"},
	"scheduler/schedtest methods world":                 {63, "the rig's methods and one for each kind of event that a world draws"},
	"radixcache fields Cache":                           {38, "the tree, its namespaces and its journal have one owner, which the compiler lays out as one"},
	"radixcache fields spaces":                          {26, "namespaces are the tree's roots"},
	"radixcache fields tree":                            {33, "arenas of nodes, edges and pages: one field an arena"},
	"radixcache methods Cache":                          {190, "the tree's operations in files by verb: match, insert, split, evict, pin, check"},
	"radixcache methods eviction":                       {80, "five policies over the same leaves; each is one file"},
	"radixcache methods spaces":                         {88, "namespaces over the tree's operations"},
	"radixcache methods tree":                           {128, "operations on nodes, which eviction and namespaces build on"},
	"router fields Router":                              {33, "workers, reservations, sessions and the queue change in one step, so they have one owner"},
	"router fields reservation":                         {32, "a reservation, and the prediction that it is scored by"},
	"router fields worker":                              {26, "a worker's state, and its predicted load"},
	"router methods Router":                             {97, "the router's calls in files by verb, the worker of a session among them; no part has a life of its own"},
	"scheduler/schedtest fields rig":                    {31, "a scheduler, its device and each checker"},
	"scheduler/schedtest fields sample":                 {22, "all that is drawn for one world"},
	"scheduler/schedtest fields world":                  {47, "a rig, what was drawn for it, and its clock"},
	"tokenizer fields Tokenizer":                        {30, "a vocabulary: tables, one field each"},
	"tokenizer/chat methods run":                        {72, "each node of a template is one method of its interpreter"},
	"actors/look_test.go func TestPinPrefix":            {85, "one story, told in order"},
	"actors/storm_test.go func storm":                   {138, "one world of random calls"},
	"cmd/coppice/route_test.go func TestRouteRefuses":   {75, "a table of cases"},
	"grammar/hostile_test.go func TestHostileRules":     {83, "a table of cases"},
	"grammar/jsonschema/refuse_test.go func TestErrors": {93, "a table of cases"},
	"router/buckets_test.go func TestPools":             {93, "one story, told in order"},
	"router/fleet_test.go func playFleet":               {122, "one world of random calls"},
	"router/model_test.go func world.step":              {92, "one world of random calls"},
	"router/models_test.go func TestModels":             {81, "one story, told in order"},
	"router/router_test.go func TestWorkersComeAndGo":   {71, "one story, told in order"},
	"router/tree_test.go func playTree":                 {77, "one world of random calls"},
	"server/api_test.go func TestSmallEndpoints":        {73, "a table of cases"},
	"tokenizer/chat/filters.go func filters":            {72, "a table of the filters of templates"},
}

// plain lists the endings of the names of structs that hold independent values and no state:
// configurations, requests, command lines, counters and measurements.
var plain = []string{"Config", "Request", "Cmd", "Metrics", "Stats", "Counts", "Report", "Result", "Figures", "Peeked", "JSON"}

// isPlain reports whether a struct is a list of values and not a state: by its name, or because every
// field has a tag, as in structs for JSON.
func isPlain(name string, fields *ast.FieldList) bool {
	if slices.ContainsFunc(plain, func(end string) bool {
		return strings.HasSuffix(name, end) || strings.HasSuffix(name, strings.ToLower(end[:1])+end[1:])
	}) {
		return true
	}
	return !slices.ContainsFunc(fields.List, func(f *ast.Field) bool { return f.Tag == nil })
}

// house holds the structs and the methods of the module, by "package type".
type house struct {
	structs map[string]*ast.StructType
	plain   map[string]bool     // structs that are lists of values
	embeds  map[string][]string // types that a struct embeds
	methods map[string]int
	nearly  map[string]int // functions whose first parameter is the type: methods by another name
}

// survey finds all types of product code. Wire types have the fields that others chose.
func survey(all []source) *house {
	h := &house{map[string]*ast.StructType{}, map[string]bool{}, map[string][]string{}, map[string]int{}, map[string]int{}}
	for _, s := range all {
		if s.test {
			continue
		}
		names := importNames(&s)
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if s.pkg == "server" && isEndpoint(d) {
					continue
				}
				if of := receiver(d); of != "" {
					h.methods[s.pkg+" "+of]++
				} else if params := d.Type.Params.List; len(params) > 0 {
					if of := named(params[0].Type); of != "" && len(params[0].Names) > 0 {
						h.nearly[s.pkg+" "+of]++
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok || s.pkg == "events/wire" {
						continue
					}
					if of, ok := spec.Type.(*ast.StructType); ok {
						name := s.pkg + " " + spec.Name.Name
						h.structs[name], h.plain[name] = of, isPlain(spec.Name.Name, of.Fields)
						h.embeds[name] = embedded(s.pkg, of, names)
					}
				}
			}
		}
	}
	return h
}

// isEndpoint reports whether a function of package server has the form of an endpoint, func(*call) error. Endpoints are
// rows of the table of routes, to which anyone may add one: a reader need not know them all.
func isEndpoint(d *ast.FuncDecl) bool {
	of, params := receiver(d), d.Type.Params.List
	if of == "" && len(params) == 1 {
		of, params = named(params[0].Type), nil
	}
	results := d.Type.Results
	return of == "call" && len(params) == 0 && results.NumFields() == 1 && named(results.List[0].Type) == "error"
}

// embedded lists the types of the module that a struct embeds.
func embedded(pkg string, of *ast.StructType, imports map[string]string) (all []string) {
	for _, f := range of.Fields.List {
		if len(f.Names) > 0 {
			continue
		}
		x := f.Type
		if star, ok := x.(*ast.StarExpr); ok {
			x = star.X
		}
		if sel, ok := x.(*ast.SelectorExpr); ok {
			if from, ok := sel.X.(*ast.Ident); ok && imports[from.Name] != "" {
				all = append(all, imports[from.Name]+" "+sel.Sel.Name)
			}
		} else if name := named(f.Type); name != "" {
			all = append(all, pkg+" "+name)
		}
	}
	return all
}

// importNames returns the packages of the module that a file imports, by their names in it.
func importNames(s *source) map[string]string {
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		rel := within(strings.Trim(spec.Path.Value, `"`))
		switch {
		case rel == "":
		case spec.Name != nil:
			names[spec.Name.Name] = rel
		case rel == ".":
			names["coppice"] = rel
		default:
			names[path.Base(rel)] = rel
		}
	}
	return names
}

// fields counts the fields of a struct that code can write without naming a part: its own, and those of the
// structs with state that it embeds.
func (h *house) fields(name string) int {
	of := h.structs[name]
	if of == nil {
		return 0
	}
	n := of.Fields.NumFields() // an embedded field is counted once by itself, and by what it brings
	for _, part := range h.embeds[name] {
		if !h.plain[part] {
			n += h.fields(part)
		}
	}
	return n
}

// calls counts the methods of a type with those of the types that it embeds, and the functions that take it first.
func (h *house) calls(name string) int {
	n := h.methods[name] + h.nearly[name]
	for _, part := range h.embeds[name] {
		n += h.calls(part)
	}
	return n
}

// TestShape bounds functions, the fields of structs with state, and the methods of types, as a reader meets them: with
// what is embedded.
func TestShape(t *testing.T) {
	sizes := map[string]int{}
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				name := d.Name.Name
				if of := receiver(d); of != "" {
					name = of + "." + name
				}
				lines := s.set.Position(d.End()).Line - s.set.Position(d.Pos()).Line + 1
				over(sizes, s.path+" func "+name, lines, maxFuncLines)
			}
		}
	}
	h := survey(sources(t))
	for name := range h.structs {
		if !h.plain[name] {
			over(sizes, strings.Replace(name, " ", " fields ", 1), h.fields(name), maxFields)
		}
	}
	for name := range h.methods {
		over(sizes, strings.Replace(name, " ", " methods ", 1), h.calls(name), maxMethods)
	}
	for _, what := range sorted(sizes) {
		if n, known := sizes[what], large[what]; n > known.size {
			t.Errorf("%s: %d, listed are %d; bounds are %d lines a function, and with what is embedded %d fields a struct with state, %d methods a type",
				what, n, known.size, maxFuncLines, maxFields, maxMethods)
		}
	}
	for what, known := range large {
		if n := sizes[what]; n == 0 {
			t.Errorf("%s is within bounds now: take it off the list", what)
		} else if n < known.size {
			t.Errorf("%s is %d, listed as %d: lower it", what, n, known.size)
		}
		if known.why == "" {
			t.Errorf("%s: say why it is so large", what)
		}
	}
}

func over(sizes map[string]int, what string, n, most int) {
	if n > most {
		sizes[what] = n
	}
}

// receiver returns the name of a method's type, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	return named(d.Recv.List[0].Type)
}

// named returns the name of a type of its own package, or of what a pointer points to, "" for another type.
func named(of ast.Expr) string {
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.IndexListExpr:
			of = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// fileNames finds the names of Go files, assembly and pages in a text.
var fileNames = regexp.MustCompile(`[A-Za-z0-9_][A-Za-z0-9_./-]*\.(?:go|s|md)\b`)

// TestCommentsNameFilesThatExist checks that files named in comments exist, in the directory of the
// comment's file or by a path from the root.
func TestCommentsNameFilesThatExist(t *testing.T) {
	exist := map[string]bool{}
	all := sources(t)
	for _, name := range everyFile(t) {
		exist[name] = true
	}
	for _, s := range all {
		if ast.IsGenerated(s.file) {
			continue
		}
		for _, group := range s.file.Comments {
			for _, name := range fileNames.FindAllString(group.Text(), -1) {
				if !exist[name] && !exist[path.Join(s.pkg, name)] {
					t.Errorf("%s: a comment names %s, which is neither beside it nor a path from the root", s.set.Position(group.Pos()), name)
				}
			}
		}
	}
}
