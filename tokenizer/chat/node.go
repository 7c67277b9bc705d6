package chat

// The syntax tree. An expression computes a value, a statement writes text.
type (
	expr interface {
		eval(r *run, s *scope) any
	}
	stmt interface {
		exec(r *run, s *scope) signal
	}
)

// signal is how a statement ends: whether the enclosing loop continues.
type signal uint8

const (
	normally signal = iota
	breaking
	continuing
)

// program is a parsed template.
type program struct {
	body    []stmt
	library *library
	parts   bool // it loops over the parts of a content
	habits  habits
}

// library has the functions, filters and tests of templates. It is read-only once made.
type library struct {
	filters     map[string]filter
	tests       map[string]test
	textMethods map[string]textMethod
	functions   map[string]function
}

func newLibrary() *library {
	return &library{filters(), tests(), textMethods(), functions()}
}

// Expressions.
type (
	literal  struct{ value any }
	name     struct{ name string }
	sequence struct { // [a, b] or (a, b)
		items []expr
		tuple bool
	}
	mapping   struct{ keys, values []expr }
	attribute struct {
		of   expr
		name string
	}
	item  struct{ of, key expr }
	slice struct{ of, start, stop, step expr } // nil if omitted
	call  struct {
		of   expr
		args argExprs
	}
	filterCall struct {
		of   expr
		name string
		args argExprs
	}
	testCall struct {
		of   expr
		name string
		args argExprs
	}
	unary struct {
		op string // "-", "+", "not"
		of expr
	}
	binary struct {
		op          string // + - * / // % ** ~
		left, right expr
	}
	logic struct { // and, or
		left, right expr
		or          bool
	}
	compare struct {
		first expr
		ops   []string
		rest  []expr
	}
	conditional struct{ test, yes, no expr } // no is nil without an else
)

// argExprs are the arguments of a call.
type argExprs struct {
	positional []expr
	names      []string // names of the keyword arguments
	named      []expr
}

// Statements.
type (
	data   struct{ text string }
	print  struct{ value expr }
	choice struct { // if, elif, else
		tests  []expr
		bodies [][]stmt
		other  []stmt
	}
	loopOver struct {
		target      target
		over, where expr // where is nil without an if
		body, other []stmt
	}
	assign struct {
		target target
		value  expr
	}
	assignBlock struct {
		target  target
		filters []filterCall // applied in order; their field of is nil
		body    []stmt
	}
	define struct { // macro
		name     string
		params   []string
		defaults []expr // defaults of the last parameters
		body     []stmt
	}
	filterBlock struct {
		filters []filterCall
		body    []stmt
	}
	with struct {
		names  []string
		values []expr
		body   []stmt
	}
	block struct{ body []stmt } // generation
	jump  struct{ how signal }
)

// target is the left side of an assignment: a name, an attribute of a namespace (field is not
// ""), or several targets.
type target struct {
	name, field string
	several     []target
}
