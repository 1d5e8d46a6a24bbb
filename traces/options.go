package traces

// SharedPrefix says what sessions share that the source cannot say, because its hash ids end at the session.
type SharedPrefix string

// OutputReuse says whether a turn's output is content of the next prompt.
type OutputReuse string

// ModelChoice says which models' turns are kept.
type ModelChoice string

const (
	SharedNone SharedPrefix = "none"
	// SharedAuto gives sessions with the same model, tool_tokens and system_tokens a common root of
	// floor((tool_tokens+system_tokens)/64)*64 tokens.
	SharedAuto SharedPrefix = "auto"

	ReuseFull OutputReuse = "full" // the next prompt holds the output as far as it fits
	ReuseNone OutputReuse = "none" // the next prompt shares the previous prompt only

	ModelsAll  ModelChoice = "all"  // every model's turns, each model with content of its own
	ModelsMain ModelChoice = "main" // only the model that the session's main thread calls most
)

// Options says how a source becomes a trace. The zero value is: no idle cap, no shared prefix, full output reuse, all
// models, default limits.
type Options struct {
	IdleCapNS    int64 // longest tool gap; longer ones become this; 0 for no cap
	SharedPrefix SharedPrefix
	OutputReuse  OutputReuse
	Models       ModelChoice
	Limits       Limits
}

func (o Options) checked() (Options, error) {
	o.Limits = o.Limits.orDefault()
	if o.SharedPrefix == "" {
		o.SharedPrefix = SharedNone
	}
	if o.OutputReuse == "" {
		o.OutputReuse = ReuseFull
	}
	if o.Models == "" {
		o.Models = ModelsAll
	}
	switch {
	case o.IdleCapNS < 0:
		return o, &InputError{Key: "idle cap", Found: "a negative time", Expected: "0 (no cap) or a positive time"}
	case o.SharedPrefix != SharedNone && o.SharedPrefix != SharedAuto:
		return o, &InputError{Key: "shared_prefix", Found: shorten(string(o.SharedPrefix)), Expected: "none or auto"}
	case o.OutputReuse != ReuseFull && o.OutputReuse != ReuseNone:
		return o, &InputError{Key: "output_reuse", Found: shorten(string(o.OutputReuse)), Expected: "full or none"}
	case o.Models != ModelsAll && o.Models != ModelsMain:
		return o, &InputError{Key: "models", Found: shorten(string(o.Models)), Expected: "all or main"}
	}
	return o, nil
}

// reread applies the options to a trace in the native format. Its content was settled when it was written: what its sessions
// share is in the file, and whether prompts hold outputs cannot be changed any more.
func (o Options) reread(path string, src Source) (Source, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	if o.OutputReuse == ReuseNone {
		return nil, &InputError{File: path, Key: "output_reuse", Found: "none, for a trace in the native format, whose content is settled",
			Expected: "full", Do: "convert the recording that it was made from once more, with --output-reuse none"}
	}
	if o.IdleCapNS > 0 {
		if src, err = capIdle(src, o.IdleCapNS); err != nil {
			return nil, err
		}
	}
	if o.Models == ModelsMain {
		src, err = newDropping(src, reasonOtherModel, otherModel)
	}
	return src, err
}
