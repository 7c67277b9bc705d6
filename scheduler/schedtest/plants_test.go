package schedtest

import (
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/scheduler/internal/planted"
)

// Plant is a deliberate bug, to test the checkers: in the scheduler as its plans show it, in
// the backend, in the pool, or in the shell between them.
type Plant uint8

// The bugs that can be planted, by the checker that must find each.
const (
	NoPlant Plant = iota

	// sanitizer
	DropCopies // the backend leaves out the copies of boundary pages
	SwapPages  // the backend swaps two pages of a row
	EarlyReuse // the backend writes a row to a page that another row still reads
	ForgetMove // a plan writes to pages that a move reads, and does not wait for it
	StalePage  // a store returns other pages than the requested ones

	// tiers
	LoseCancel // the shell does not pass on that a move is no longer needed
	ChildFirst // an extent is written to a tier before its parent
	LoseMove   // the shell loses the ending of a move

	// outputs
	StaleDeferred // the backend uses an older sample than the last one
	DoubleToken   // the shell delivers a token twice
	WrongToken    // the shell delivers another token

	// endings
	LoseMask     // the backend ignores the mask
	StaleMask    // the scheduler uses the mask of another state of a format
	LoseEnding   // the shell loses an ending
	DoubleEnding // the shell delivers an ending twice
	ForgedBill   // an ending counts one output token too many
	DeafToAbort  // an abort is not passed on
	BelieveMove  // the shell reports a failed move as successful

	LoseDisplaced // the shell loses the ending of a request that was displaced

	// ledger
	GrantTwice  // the pool grants a page that is already granted
	LosePage    // the pool loses a returned page
	ForeignPage // a plan uses a page that was never granted
	EarlyReturn // a page goes back to a shared pool while a plan in flight uses it

	// rows
	OverBudget   // the scheduler plans more tokens than its limit
	TwoWriters   // a plan has two rows write to one page
	WrongStart   // a row starts one token too late
	SkipSampling // the last chunk of a prompt does not sample

	// inflight
	RewriteRow // the scheduler changes a row of a plan in flight

	// floor
	NoFloor // the scheduler reserves nothing of a step for prompts

	// precedence
	Eager        // the scheduler preempts for less than the threshold
	PreemptAgain // the scheduler preempts a sequence again before it has sampled a token

	// drafts
	Unverified   // a guess that the backend refused becomes a token of the output
	KeepRefused  // KV of refused guesses is published
	ForeignDraft // guesses come from other namespaces
	LateMask     // a mask of a row with drafts is that of the position before
	BillRefused  // refused guesses are billed

	// computed
	MisCount  // the backend counts one token too many
	LoseToken // the shell loses a token

	// mirror
	DropEvent   // a cache event gets lost
	DoubleEvent // a cache event is delivered twice

	// failed
	KeepFailed // the scheduler is told that failed rows' KV is sound; only in worlds with faults
	KeepBelow  // KV of failed requests stays in lower tiers; only in worlds with faults

	// salts
	AllPublic // prompts count as public as a whole

	// retention
	KeepReleased // what a released session left is kept like other KV

	// parks
	KeepParked // a parked prefix stays on the device
	ParkEarly  // a park ends before the tier has its prefix

	// quotas
	KeepOver // a namespace keeps what its pins protected beyond its quota

	// contents
	OverwritePage // the backend writes to a page that only the cache uses

	// progress
	LoseGrant  // the pool never answers
	LoseResult // the backend never finishes a step
	Starve     // the policy passes over the oldest requests

	// shares
	Favour       // the policy gives the tenants far more per round than configured
	ForgiveDebts // the debt of a tenant without open requests is dropped
	KeepCredit   // a tenant keeps the unused part of its share
	ChargeCached // cached tokens are charged like computed ones

	// refusals
	LongQueue    // the queue accepts more than its limit
	NoDisplacing // a full queue displaces no request

	// twin
	HiddenDraw // a random number is drawn that does not depend on the seed

	plantCount
)

// A row that reads wrong KV makes the sanitizer fail, unless it reads a whole prefix of another
// request: then only its output is wrong. The scheduler fails a request whose token the row's
// mask forbids.
var plants = [plantCount]struct{ name, checker, or string }{
	NoPlant:       {"none", "", ""},
	DropCopies:    {"drop-copies", "sanitizer", "outputs"},
	SwapPages:     {"swap-pages", "sanitizer", "outputs"},
	EarlyReuse:    {"early-reuse", "sanitizer", "outputs"},
	ForgetMove:    {"forget-move", "sanitizer", ""},
	StalePage:     {"stale-page", "sanitizer", "outputs contents"},
	LoseCancel:    {"lose-cancel", "tiers", ""},
	ChildFirst:    {"child-first", "tiers", ""},
	LoseMove:      {"lose-move", "tiers", "progress"},
	BelieveMove:   {"believe-move", "endings", "sanitizer computed"},
	StaleDeferred: {"stale-deferred", "outputs", ""},
	DoubleToken:   {"double-token", "outputs", ""},
	WrongToken:    {"wrong-token", "outputs", ""},
	LoseMask:      {"lose-mask", "endings", "outputs"},
	StaleMask:     {"stale-mask", "endings", "outputs"},
	LoseEnding:    {"lose-ending", "endings", ""},
	DoubleEnding:  {"double-ending", "endings", ""},
	ForgedBill:    {"forged-bill", "endings", ""},
	DeafToAbort:   {"deaf-to-abort", "endings", ""},
	LoseDisplaced: {"lose-displaced", "endings", ""},
	RewriteRow:    {"rewrite-row", "inflight", ""},
	NoFloor:       {"no-floor", "floor", ""},
	Eager:         {"eager", "precedence", ""},
	PreemptAgain:  {"preempt-again", "precedence", ""},
	NoDisplacing:  {"no-displacing", "refusals", ""},
	GrantTwice:    {"grant-twice", "ledger", ""},
	LosePage:      {"lose-page", "ledger", ""},
	ForeignPage:   {"foreign-page", "ledger", ""},
	EarlyReturn:   {"early-return", "ledger", ""},
	OverBudget:    {"over-budget", "rows", ""},
	TwoWriters:    {"two-writers", "rows", ""},
	WrongStart:    {"wrong-start", "rows", ""},
	SkipSampling:  {"skip-sampling", "rows", ""},
	Unverified:    {"unverified", "outputs", ""},
	KeepRefused:   {"keep-refused", "drafts", "contents rows sanitizer outputs"},
	ForeignDraft:  {"foreign-draft", "drafts", ""},
	LateMask:      {"late-mask", "outputs", "endings"},
	BillRefused:   {"bill-refused", "endings", ""},
	MisCount:      {"mis-count", "computed", ""},
	LoseToken:     {"lose-token", "computed", ""},
	DropEvent:     {"drop-event", "mirror", ""},
	DoubleEvent:   {"double-event", "mirror", ""},
	KeepFailed:    {"keep-failed", "failed", ""},
	KeepBelow:     {"keep-below", "failed", ""},
	AllPublic:     {"all-public", "salts", ""},
	KeepReleased:  {"keep-released", "retention", ""},
	KeepParked:    {"keep-parked", "parks", ""},
	ParkEarly:     {"park-early", "parks", ""},
	KeepOver:      {"keep-over", "quotas", ""},
	OverwritePage: {"overwrite-page", "contents", ""},
	LoseGrant:     {"lose-grant", "progress", ""},
	LoseResult:    {"lose-result", "progress", ""},
	Starve:        {"starve", "progress", ""},
	Favour:        {"favour", "shares", ""},
	ForgiveDebts:  {"forgive-debts", "shares", ""},
	KeepCredit:    {"keep-credit", "shares", ""},
	ChargeCached:  {"charge-cached", "shares", ""},
	LongQueue:     {"long-queue", "refusals", ""},
	HiddenDraw:    {"hidden-draw", "twin", ""},
}

var plantNames = func() enum.Table[Plant] {
	var names []string
	for _, p := range plants {
		names = append(names, p.name)
	}
	return enum.New[Plant]("schedtest", "plant", names...)
}()

// allPlants returns all bugs that can be planted.
func allPlants() []Plant { return plantNames.Values()[1:] }

func (p Plant) String() string { return plantNames.Name(p) }

// foundBy reports whether the named checker may be the first to find the bug.
func (p Plant) foundBy(checker string) bool {
	e := &plants[p]
	return checker != "" && (checker == e.checker || slices.Contains(strings.Fields(e.or), checker))
}

// checker returns the name of the checker that must find the bug.
func (p Plant) checker() string { return plants[p].checker }

// faults maps the bugs that the scheduler implements itself.
var faults = map[Plant]planted.Fault{
	ForgiveDebts: planted.ForgiveDebts, KeepCredit: planted.KeepCredit, ChargeCached: planted.ChargeCached, StaleMask: planted.StaleMask,
	PreemptAgain: planted.PreemptAgain, KeepBelow: planted.KeepBelow, KeepOver: planted.KeepOver, KeepReleased: planted.KeepReleased, AllPublic: planted.AllPublic,
	Unverified: planted.Unverified, KeepRefused: planted.KeepRefused, ForeignDraft: planted.ForeignDraft, LateMask: planted.LateMask, BillRefused: planted.BillRefused,
	KeepParked: planted.KeepParked, ParkEarly: planted.ParkEarly,
}

// drafts reports whether only worlds with drafts show the bug.
func (p Plant) drafts() bool {
	return p == ForeignDraft || p == Unverified || p == KeepRefused || p == LateMask || p == BillRefused
}

// fair reports whether only fair worlds show the bug.
func (p Plant) fair() bool { return p == ForgiveDebts || p == KeepCredit || p == ChargeCached }
