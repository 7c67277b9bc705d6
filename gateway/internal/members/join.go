package members

import (
	"slices"

	"github.com/coppice-llm/coppice/events/card"
)

// applyCard joins the worker with the card in s. If the worker has joined, it updates the
// models; if the card's name, pool or epoch has changed, the worker leaves and joins again. A
// worker that does not fit into the fleet is refused with an error.
func (k *keeper) applyCard(s description) error {
	f, m, known := k.f, k.m, k.m.card()
	if known != nil && k.ranks != nil && known.Name == s.card.Name && known.Pool == s.card.Pool && known.Epoch == s.card.Epoch {
		if len(k.ranks) < m.Ranks() { // the router had no room for all ranks before
			return k.join(known)
		}
		if slices.Equal(known.Models, s.card.Models) && known.MaxModelTokens == s.card.MaxModelTokens {
			return nil
		}
		return k.updateModels(s)
	}
	k.leave()
	if known != nil && known.Name != s.card.Name {
		f.Forget(known.Name)
	}
	if want := f.cfg.BlockTokens; s.card.BlockTokens != 0 && s.card.BlockTokens != want {
		return refuse("worker %s has blocks of %d tokens, this gateway of %d, so none of its blocks would be found: start both with the same --block-tokens",
			m.url, s.card.BlockTokens, want)
	}
	if err := k.admitted(s.card); err != nil {
		return err
	}
	k.warnOfKeys(&s)
	if err := f.checkTokenizer(m, s.card); err != nil {
		return err
	}
	if !f.claim(m, s) {
		return refuse("worker %s has the name %q of another worker: give it a unique --name", m.url, s.card.Name)
	}
	if err := k.join(s.card); err != nil {
		return err
	}
	f.Enroll() // before it may be chosen: requests find the member in the snapshot
	return nil
}

// admitted returns a refusal if Config.Admit refuses the card.
func (k *keeper) admitted(c *card.Card) error { return refused(k.f.cfg.Admit(k.m.url.String(), c)) }

// warnOfKeys warns of settings of API keys that are no error, but keep the worker's cached
// prefixes from being found.
func (k *keeper) warnOfKeys(s *description) {
	f, field := k.f, k.m.Field()
	switch {
	case s.card.Keyed && !f.cfg.Keyed:
		f.log.Warn("the worker requires API keys and the gateway does not, so tenants' prefixes will not be found: give both the same keys", field)
	case !s.card.Keyed && f.cfg.Keyed && !s.foreign:
		f.log.Warn("the gateway requires API keys and the worker does not, so tenants' prefixes will not be found: give both the same keys", field)
	case s.foreign && f.cfg.Keyed && !f.cfg.Tenants:
		f.log.Warn("the worker is not Coppice and may separate tenants in another way, so their prefixes may not be found", field)
	}
}

// updateModels applies a new list of models or a new maximal length, for example after the
// worker has loaded an adapter. Its cached blocks and running requests stay.
func (k *keeper) updateModels(s description) error {
	for _, w := range k.ranks {
		if err := k.f.cfg.Apply(Changed{w, s.card}); err != nil {
			return refused(err)
		}
	}
	k.m.mu.Lock()
	k.m.description.card, k.m.description.loras = s.card, s.loras
	k.m.mu.Unlock()
	k.f.Enroll()
	return nil
}

// join joins the ranks that have not joined yet. They get no requests until all have joined and
// the worker has answered that it is ready.
func (k *keeper) join(c *card.Card) error {
	blind := k.f.sources(k.m, c) == nil
	for dp := len(k.ranks); dp < k.m.Ranks(); dp++ {
		w := k.m.rank(c, dp)
		if err := k.f.cfg.Apply(Joined{w, c, blind}); err != nil {
			return refused(err)
		}
		k.ranks = append(k.ranks, w)
	}
	k.m.setState(Joining)
	return nil
}

// leave removes the worker's ranks. Requests that run there are not cancelled.
func (k *keeper) leave() {
	k.unfollow()
	for _, w := range k.ranks {
		k.f.cfg.Apply(Left{w})
	}
	k.f.unclaim(k.m) // also if it could not join
	k.ranks = nil
}
