package schedtest

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// bug changes what the parts of a world pass to each other. Tests plant bugs, to show that the
// checkers find them. Methods that return a value return what is passed on.
type bug interface {
	// setup is called when w, load when l has been drawn.
	setup(w *setup)
	load(l *load)
	// config changes the scheduler's configuration; the checkers keep the sound one.
	config(cfg scheduler.Config, info *engine.Info) scheduler.Config
	// begin is called with a complete rig.
	begin(r *rig)
	// arrive is called before each arrival.
	arrive(w *world)
	// deaf reports whether an abort does not reach the scheduler.
	deaf(r *rig) bool
	// plan changes the new plan p.
	plan(r *rig, p *scheduler.Plan)
	// result changes a result for the scheduler; the checkers get the sound one.
	result(res *engine.Result) *engine.Result
	outputs(r *rig, out []scheduler.Output) []scheduler.Output
	events(r *rig, events []kv.Event) []kv.Event
	// asked changes the number of pages that the pool is asked for; 0 loses the request.
	asked(r *rig, pages int) int
	granted(r *rig, pages []kv.PageID) []kv.PageID
	returned(r *rig, pages []kv.PageID) []kv.PageID
	// read changes the pages of the record rec that the move c reads.
	read(l *lower, c *carried, rec *record) *record
	// moved changes the result of the move c. If ok is false, the result is lost.
	moved(l *lower, c *carried, err error) (result error, ok bool)
	// end is called before the last checks.
	end(r *rig)
}

// noBug changes nothing.
type noBug struct{}

func (noBug) setup(*setup)                                                    {}
func (noBug) load(*load)                                                      {}
func (noBug) config(cfg scheduler.Config, _ *engine.Info) scheduler.Config    { return cfg }
func (noBug) begin(*rig)                                                      {}
func (noBug) arrive(*world)                                                   {}
func (noBug) deaf(*rig) bool                                                  { return false }
func (noBug) plan(*rig, *scheduler.Plan)                                      {}
func (noBug) result(res *engine.Result) *engine.Result                        { return res }
func (noBug) outputs(_ *rig, out []scheduler.Output) []scheduler.Output       { return out }
func (noBug) events(_ *rig, events []kv.Event) []kv.Event                     { return events }
func (noBug) asked(_ *rig, pages int) int                                     { return pages }
func (noBug) granted(_ *rig, pages []kv.PageID) []kv.PageID                   { return pages }
func (noBug) returned(_ *rig, pages []kv.PageID) []kv.PageID                  { return pages }
func (noBug) read(_ *lower, _ *carried, rec *record) *record                  { return rec }
func (noBug) moved(_ *lower, _ *carried, err error) (result error, sent bool) { return err, true }
func (noBug) end(*rig)                                                        {}
