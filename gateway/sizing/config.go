package sizing

import (
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// Config sizes a run. The zero value works. Its tags state the defaults, the bounds, and the flags of
// coppice bench fleet.
type Config struct {
	Workers     int           `default:"512" min:"1" max:"4096" help:"Number of workers."`
	Sessions    int           `default:"20000" min:"2" max:"1<<20" help:"Number of conversations whose prompts the workers have cached."`
	Tokens      int           `default:"100000" min:"1" max:"1<<22" help:"Tokens of each conversation at the start."`
	TurnTokens  int           `default:"500" min:"1" max:"1<<20" help:"Tokens that each turn adds to a conversation."`
	BlockTokens int           `default:"16" min:"1" max:"1<<16" help:"Tokens per block."`
	Rate        float64       `default:"2000" above:"0" max:"1e6" help:"Choices per second under load."`
	Duration    time.Duration `default:"20s" above:"0s" max:"1h" help:"Time under load, once without churn and once with it."`
	Hold        time.Duration `default:"4s" above:"0s" max:"1h" help:"Time from the choice for a request to its end."`
	Churn       float64       `default:"10" min:"0" max:"1e4" help:"Workers per second that leave and join again, empty, under load with churn."`
	Seed        uint64        `default:"7" help:"Seed of the conversations and of the choices."`
}

// withDefaults returns c with every zero field set to its default, except Churn, of which 0 means
// none.
func (c Config) withDefaults() Config {
	churn := c.Churn
	c = bounds.Fill(c)
	c.Churn = churn
	return c
}

// validate reports all faults at once, by field and value.
func (c *Config) validate() error {
	faults := bounds.Faults{Owner: "sizing: "}
	faults.Add(bounds.Check("sizing", c))
	faults.If(c.Tokens < c.BlockTokens, "Tokens is %d, want at least BlockTokens, %d: a shorter prompt has no block", c.Tokens, c.BlockTokens)
	open := c.Rate * c.Hold.Seconds()
	faults.If(2*open > float64(c.Sessions), "Rate times Hold is %.0f open requests, want at most half of Sessions, %d", open, c.Sessions)
	return faults.Err()
}

// blocks returns the full blocks of a prompt of this many tokens.
func (c *Config) blocks(tokens int) int { return kv.FloorPages(tokens, c.BlockTokens) }
