package inferencepool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-llm/coppice/gateway"
)

// Config configures a Watcher. Client, Namespace, Apply, and Pool or Service are required.
type Config struct {
	Client    dynamic.Interface
	Namespace string
	// Pool is the name of the InferencePool. Its selector chooses the pods, and its targetPorts are the workers' ports.
	Pool string
	// Service, if given, is the name of a service whose EndpointSlices list the workers instead of the pool's selector. Without a
	// Pool, the ports are those of the service.
	Service string
	// Objectives reads InferenceObjectives too, see Watcher.Priority.
	Objectives bool
	// Apply takes the whole list when it has changed. After an error it is called again, after a second.
	Apply func([]gateway.WorkerConfig) error
	Log   *zap.Logger // default: none
}

// Watcher keeps a gateway's list of workers equal to that of a pool.
type Watcher struct {
	cfg     Config
	changed chan struct{} // capacity 1

	mu         sync.Mutex
	priorities map[string]int // by objective
}

// New makes a Watcher. It reports all faults of cfg.
func New(cfg Config) (*Watcher, error) {
	var errs []error
	if cfg.Client == nil || cfg.Apply == nil {
		errs = append(errs, errors.New("inferencepool: Client or Apply is nil"))
	}
	if cfg.Namespace == "" {
		errs = append(errs, errors.New("inferencepool: Namespace is empty"))
	}
	if cfg.Pool == "" && cfg.Service == "" {
		errs = append(errs, errors.New("inferencepool: neither Pool nor Service is given"))
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Watcher{cfg: cfg, changed: make(chan struct{}, 1), priorities: map[string]int{}}, errors.Join(errs...)
}

// Priority returns the priority of an objective of the pool; false if there is no such objective.
func (w *Watcher) Priority(name string) (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.priorities[name]
	return p, ok
}

// retryAfter is the time after which a list is applied again that was refused.
const retryAfter = time.Second

// Run follows the pool until ctx ends, then returns nil once its goroutines have ended.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	start := func(ctx context.Context, of schema.GroupVersionResource, tweak func(*metav1.ListOptions)) (cache.SharedIndexInformer, error) {
		in := dynamicinformer.NewFilteredDynamicInformer(w.cfg.Client, of, w.cfg.Namespace, 0, cache.Indexers{}, tweak).Informer()
		note := func(any) { w.note() }
		_, err := in.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, DeleteFunc: note, UpdateFunc: func(_, _ any) { w.note() }})
		if err == nil {
			running.Go(func() { in.Run(ctx.Done()) })
			running.Go(func() { // a list that stays empty is news too
				if cache.WaitForCacheSync(ctx.Done(), in.HasSynced) {
					w.note()
				}
			})
		}
		return in, err
	}
	var pool, members, aims cache.SharedIndexInformer
	var err error
	if w.cfg.Pool != "" {
		pool, err = start(ctx, pools, named(w.cfg.Pool))
	}
	if err == nil && w.cfg.Service != "" {
		members, err = start(ctx, slicesOf, labelled(map[string]string{serviceLabel: w.cfg.Service}))
	}
	if err == nil && w.cfg.Objectives {
		aims, err = start(ctx, objectives, nil)
	}
	if err != nil {
		return err
	}
	v := view{w: w, pool: pool, aims: aims, members: members}
	v.follow = func(selector map[string]string) (cache.SharedIndexInformer, func(), error) {
		ctx, stop := context.WithCancel(ctx)
		in, err := start(ctx, pods, labelled(selector))
		return in, stop, err
	}
	for {
		var again <-chan time.Time
		if err := v.update(); err != nil {
			w.cfg.Log.Error("endpoints not loaded", zap.Error(err))
			again = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
		case <-again:
		}
	}
}

// note says that something may have changed.
func (w *Watcher) note() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// named and labelled restrict what an informer lists.
func named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
}

func labelled(set map[string]string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.LabelSelector = labels.SelectorFromSet(set).String() }
}

// view is what Run has seen so far.
type view struct {
	w                   *Watcher
	pool, aims, members cache.SharedIndexInformer // members are pods or EndpointSlices; nil if not read, or not yet
	follow              func(selector map[string]string) (pods cache.SharedIndexInformer, stop func(), err error)
	selector            map[string]string // of members, if these are pods
	stop                func()
	applied             []gateway.WorkerConfig
	loaded              bool // applied was applied
}

// update applies the list of workers if it has changed. Until everything has been listed once, and while the pool does not exist,
// it does nothing: a picker that starts must not take its workers for gone.
func (v *view) update() error {
	cfg := &v.w.cfg
	var ports []int64
	if v.pool != nil {
		obj, exists, err := v.pool.GetStore().GetByKey(cfg.Namespace + "/" + cfg.Pool)
		if err != nil || !exists {
			return err
		}
		_, p := read[pool](obj)
		ports = p.ports()
		if selector := p.Spec.Selector.MatchLabels; cfg.Service == "" && (v.members == nil || !maps.Equal(selector, v.selector)) {
			if len(selector) == 0 {
				return errors.New("inferencepool: the pool's selector is empty") // it would select all pods
			}
			if v.stop != nil {
				v.stop()
			}
			in, stop, err := v.follow(selector)
			if err != nil {
				stop()
				return err
			}
			v.members, v.selector, v.stop = in, selector, stop
		}
	}
	if v.aims != nil {
		v.w.prioritize(v.aims.GetStore().List())
	}
	if !v.members.HasSynced() {
		return nil
	}
	objs := v.members.GetStore().List()
	addrs := []string(nil)
	if cfg.Service == "" {
		addrs = ofPods(objs)
	} else {
		own := []int64(nil)
		if addrs, own = ofSlices(objs); v.pool == nil {
			ports = own
		}
	}
	list := workers(addrs, ports)
	if v.loaded && slices.Equal(list, v.applied) {
		return nil
	}
	err := cfg.Apply(list)
	if v.applied, v.loaded = list, err == nil; err == nil {
		cfg.Log.Info("endpoints loaded", zap.Int("workers", len(list)))
	}
	return err
}

// prioritize stores the priorities of the pool's objectives.
func (w *Watcher) prioritize(objs []any) {
	all := map[string]int{}
	for _, obj := range objs {
		if name, o := read[objective](obj); w.cfg.Pool == "" || o.Spec.PoolRef.Name == w.cfg.Pool {
			all[name] = int(o.Spec.Priority)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.priorities = all
}
