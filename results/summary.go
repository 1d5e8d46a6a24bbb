package results

// SchemaVersion is the version of summary.json, compare.json and the Parquet columns. Additions do not raise it.
const SchemaVersion = 1

// Modes of replay, as Info.Mode.
const (
	ModeClosed  = "closed"
	ModeOpen    = "open"
	ModeRollout = "rollout"
)

// Info identifies a run. It goes into every file of the run's folder.
type Info struct {
	Run, Arm       string
	Seed           uint64
	Version        string // of the simulator
	ScenarioDigest string
	TraceDigest    string
	Scenario       []byte    // the scenario as resolved, YAML
	Mode           string    // ModeClosed, ModeOpen or ModeRollout
	Gate           string    // name of the gate policy; "" or "none" when there is none
	Varied         []Setting // the knobs that tell this arm from the others of a comparison
	SLO            *SLO      // nil: none
}

// Setting is the value of a knob.
type Setting struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

// SLO bounds the latency of a turn: TTFT by TTFTS + TTFTPer1KPromptS * prompt tokens / 1000, TPOT by TPOTS. A bound that
// is zero does not apply.
type SLO struct {
	TTFTS            float64 `json:"ttft_s"`
	TTFTPer1KPromptS float64 `json:"ttft_per_1k_prompt_s"`
	TPOTS            float64 `json:"tpot_s"`
}

// Summary is summary.json: every metric of a run. A number that does not exist is null, never zero. The doc tags are
// the definitions and the source of the metrics page.
type Summary struct {
	SchemaVersion  int       `json:"schema_version" doc:"version of this file and of the Parquet columns"`
	Run            string    `json:"run" doc:"name of the run"`
	Arm            string    `json:"arm" doc:"name of the arm within a comparison"`
	Seed           uint64    `json:"seed" doc:"seed of all draws"`
	Version        string    `json:"version" doc:"version of the simulator"`
	ScenarioDigest string    `json:"scenario_digest" doc:"digest of the scenario as resolved"`
	TraceDigest    string    `json:"trace_digest" doc:"digest of the trace as imported"`
	Mode           string    `json:"mode" doc:"replay mode: closed, open or rollout"`
	GatePolicy     string    `json:"gate_policy" doc:"name of the gate policy"`
	Varied         []Setting `json:"varied" doc:"knobs that tell this arm from the others"`
	SLO            *SLO      `json:"slo" doc:"latency bounds; null when the scenario sets none"`

	Verdict      Verdict      `json:"verdict" doc:"what limited the run"`
	TableWindow  string       `json:"table_window" doc:"the window that tables show: steady in open and closed mode where it exists, else whole"`
	Conservation Conservation `json:"conservation" doc:"every turn that was read is accounted for"`
	Cluster      Cluster      `json:"cluster" doc:"what ran"`
	Whole        *Window      `json:"whole" doc:"from the first arrival to the last completion; null when nothing completed"`
	Steady       *Window      `json:"steady" doc:"from the moment 10 % of the sessions have started to the moment 90 % of the finished turns have finished; null when it is empty"`
	ITL          Dist         `json:"itl_s" doc:"inter-token gaps pooled over all requests, from a histogram with a resolution of 0.1 %"`
	Milestones   Milestones   `json:"milestones" doc:"time from the first arrival until a share of the sessions is complete"`
	Waste        Waste        `json:"waste" doc:"prompt tokens computed again after they had been computed for the same content somewhere in the cluster, whole run"`
	Gate         Gate         `json:"gate" doc:"what the gate did, all attempts of the whole run"`
	Engine       Engine       `json:"engine" doc:"what the engines did in the whole run"`
	Leases       Leases       `json:"leases" doc:"admitted attempts: admitted = finished + failed + cancelled + live"`
	ByTurn       []Bucket     `json:"by_turn" doc:"latency and hits by turn number within the thread, whole run"`
	ByContext    []Bucket     `json:"by_context" doc:"latency and hits by prompt tokens, whole run"`
	Notes        []Count      `json:"notes" doc:"repairs and assumptions of import and run"`
}

// Dist summarises a sample. Percentiles are exact with linear interpolation; pXX is null when n(1-XX) < 5.
type Dist struct {
	N    int64    `json:"n"`
	Mean *float64 `json:"mean"`
	P50  *float64 `json:"p50"`
	P75  *float64 `json:"p75"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95"`
	P99  *float64 `json:"p99"`
	Max  *float64 `json:"max"`
}

// Verdict names what limited a run.
type Verdict struct {
	Code       string `json:"code" doc:"first match of: invalid (over 1 % of the turns dropped or failed), gate (waits at the gate over 20 % of turn latency), kv (recompute waste over 20 % of computed prefill), skew (work max/mean over 1.5), idle (mean busy share under 50 %), prefill or decode (whichever keeps the replicas busier)"`
	Bottleneck string `json:"bottleneck" doc:"the code apart from invalid: what limited an invalid run as well"`
	Text       string `json:"text" doc:"the verdict in words"`
}

// Conservation accounts for every turn that was read.
type Conservation struct {
	Read     int64   `json:"read_turns" doc:"turns read"`
	Finished int64   `json:"finished_turns" doc:"turns whose last attempt produced all its output"`
	Failed   int64   `json:"failed_turns" doc:"turns whose last attempt did not, or which never started"`
	Dropped  int64   `json:"dropped_turns" doc:"turns dropped before the run"`
	Holds    bool    `json:"holds" doc:"read = finished + failed + dropped"`
	ByReason []Count `json:"dropped_by_reason" doc:"dropped turns by reason"`
	Outcomes []Count `json:"last_attempts_by_outcome" doc:"last attempts by outcome"`
	Attempts int64   `json:"attempts" doc:"attempts, retries included"`
	Sessions int64   `json:"sessions" doc:"sessions asked for"`
	Complete int64   `json:"complete_sessions" doc:"sessions of which every turn finished"`
}

// Cluster is what ran.
type Cluster struct {
	Replicas    int32 `json:"replicas" doc:"replicas"`
	GPUs        int32 `json:"gpus" doc:"GPUs over all replicas, idle ones included"`
	KVTokens    int64 `json:"kv_tokens_per_replica" doc:"KV capacity of a replica"`
	KVBlocks    int64 `json:"kv_blocks_per_replica" doc:"usable KV blocks of a replica"`
	BlockTokens int32 `json:"block_tokens" doc:"tokens of a KV block"`
}

// Window is everything that is measured over a stretch of time. Turns belong to the window in which they arrived (first
// attempt); tokens to the one in which they were produced.
type Window struct {
	Start  float64 `json:"start_s" doc:"start of the window since the run began"`
	End    float64 `json:"end_s" doc:"end of the window since the run began"`
	Length float64 `json:"length_s" doc:"length of the window"`

	Turns    int64 `json:"turns" doc:"turns that arrived"`
	Finished int64 `json:"finished_turns" doc:"of these, finished"`

	TotalTPS           *float64 `json:"total_tps" doc:"input_tps + output_tps"`
	InputTPS           *float64 `json:"input_tps" doc:"prompt tokens, cached ones included, per second; counted when the prompt is first scheduled, abandoned attempts included"`
	OutputTPS          *float64 `json:"output_tps" doc:"tokens generated per second, abandoned attempts included"`
	ComputedPrefillTPS *float64 `json:"computed_prefill_tps" doc:"prompt tokens actually computed per second, recomputation included"`
	TotalPerGPU        *float64 `json:"total_tps_per_gpu" doc:"total_tps / all GPUs held"`
	OutputPerGPU       *float64 `json:"output_tps_per_gpu" doc:"output_tps / all GPUs held"`
	ComputedPerGPU     *float64 `json:"computed_prefill_tps_per_gpu" doc:"computed_prefill_tps / all GPUs held"`
	TurnsPerS          *float64 `json:"finished_turns_per_s" doc:"turns finished within the window per second"`
	SessionsPerH       *float64 `json:"complete_sessions_per_h" doc:"sessions completed within the window per hour"`

	HitRate       *float64 `json:"hit_rate" doc:"prompt tokens found cached at first scheduling / prompt tokens, over the last attempts that were scheduled; recomputation after a preemption does not count"`
	HitRateGPU    *float64 `json:"hit_rate_gpu" doc:"the part of hit_rate found in the GPU tier"`
	HitRateCPU    *float64 `json:"hit_rate_cpu" doc:"the part of hit_rate found in the CPU tier"`
	HitRateGlobal *float64 `json:"hit_rate_global" doc:"the part of hit_rate found in the global store"`
	Ceiling       *float64 `json:"hit_ceiling" doc:"hit rate of the same turns with an infinite cache and ideal routing"`
	Capture       *float64 `json:"hit_capture" doc:"hit_rate / hit_ceiling"`
	SessionHit    Dist     `json:"session_hit_rate" doc:"hit rate of each session"`

	TTFT          Dist     `json:"ttft_s" doc:"time to first token: first token - arrival of the turn's first attempt at the gate, so gate waits and retries are included; finished turns"`
	TTFTEngine    Dist     `json:"ttft_engine_s" doc:"first token - sent to the replica; last attempts of finished turns"`
	GateWait      Dist     `json:"gate_wait_s" doc:"admitted - arrival, last attempts of finished turns"`
	EngineQueue   Dist     `json:"engine_queue_s" doc:"first scheduled - sent to the replica, last attempts of finished turns"`
	TPOT          Dist     `json:"tpot_s" doc:"time per output token after the first: (last token - first token) / (output tokens - 1), one value per finished turn with at least two output tokens"`
	E2EL          Dist     `json:"e2el_s" doc:"end-to-end latency of a turn: last token - arrival of the turn's first attempt at the gate; finished turns"`
	ToolGap       Dist     `json:"tool_gap_s" doc:"from what triggered the turn to its arrival"`
	SessionTime   Dist     `json:"session_time_s" doc:"session completion time: last token - first arrival, sessions that started in the window and completed"`
	Interactivity *float64 `json:"interactivity_p50_tps" doc:"1 / tpot_s.p50: tokens per second that one user sees"`

	PromptTokens   int64    `json:"prompt_tokens" doc:"prompt tokens of the turns that arrived, last attempts that were scheduled"`
	ComputedTokens int64    `json:"computed_tokens" doc:"prompt tokens computed for attempts of these turns"`
	WastedTokens   int64    `json:"wasted_tokens" doc:"prompt tokens computed again for attempts of these turns"`
	Thrash         *float64 `json:"thrash_index" doc:"wasted_tokens / computed_tokens"`

	GateShare    *float64  `json:"gate_share" doc:"waits at the gate of all attempts / latency of the finished turns"`
	HeldTurns    int64     `json:"held_turns" doc:"turns that the gate held at least once, last attempts"`
	Work         Imbalance `json:"work" doc:"imbalance of computed prompt tokens between replicas"`
	InFlight     Imbalance `json:"in_flight" doc:"imbalance of attempts in flight between replicas"`
	Resident     Imbalance `json:"resident" doc:"imbalance of resident tokens between replicas"`
	Busy         *float64  `json:"busy_share" doc:"time that replicas computed / time, mean of the replicas"`
	Idle         *float64  `json:"idle_share" doc:"1 - busy_share"`
	ReplicaBusy  []float64 `json:"replica_busy_share" doc:"busy share by replica"`
	ReplicaWork  []int64   `json:"replica_computed_tokens" doc:"computed prompt tokens by replica"`
	KVUsage      *float64  `json:"kv_usage_mean" doc:"referenced KV blocks / usable blocks, mean over time and replicas"`
	KVUsageMax   *float64  `json:"kv_usage_max" doc:"largest sample of the same"`
	SampledAtAll bool      `json:"sampled" doc:"replicas.parquet covers the window; imbalance and the steady window's rates need it"`

	SLO *SLOResult `json:"slo" doc:"attainment and goodput; null without an SLO"`

	ByClass []ClassResult `json:"by_class" doc:"the turns of each service class; empty if the run has one class only. A metric is named by the class, such as by_class.0.ttft_s.p95"`
}

// Imbalance compares replicas over windows of 60 s; the means are weighted by time, windows without load are left out.
type Imbalance struct {
	MaxMean *float64 `json:"max_mean" doc:"largest replica / mean of the replicas"`
	CV      *float64 `json:"cv" doc:"coefficient of variation over the replicas"`
	Jain    *float64 `json:"jain" doc:"Jain's fairness index: 1 is even, 1/replicas is all on one"`
}

// SLOResult is how a window did against the SLO.
type SLOResult struct {
	Attainment        *float64 `json:"attainment" doc:"share of all arrived turns that met every bound; a turn that failed, was refused or timed out is a miss"`
	SessionAttainment *float64 `json:"session_attainment" doc:"share of the sessions that started of which every turn met every bound"`
	GoodTurnsPerS     *float64 `json:"good_turns_per_s" doc:"turns that met the SLO and finished in the window per second"`
	GoodOutputTPS     *float64 `json:"good_output_tps" doc:"their output tokens per second"`
	GoodTotalTPS      *float64 `json:"good_total_tps" doc:"their prompt tokens (cached ones included) and output tokens per second: TPS within SLO"`
	GoodSessionsPerH  *float64 `json:"good_sessions_per_h" doc:"sessions of which every turn met the SLO and that ended in the window, per hour"`
	Infeasible        *float64 `json:"infeasible_share" doc:"share of the turns that would miss the SLO alone on an idle replica with a warm cache"`
}

// Milestones are null until that share of all sessions is complete.
type Milestones struct {
	T50      *float64 `json:"t50_s" doc:"until 50 % of the sessions are complete"`
	T90      *float64 `json:"t90_s" doc:"until 90 % of the sessions are complete"`
	Makespan *float64 `json:"makespan_s" doc:"until all sessions are complete"`
}

// Waste is recompute waste by cause.
type Waste struct {
	ByCause []Count  `json:"tokens_by_cause" doc:"one cause per token, the first that matches in this order"`
	Tokens  int64    `json:"tokens" doc:"sum over the causes"`
	Thrash  *float64 `json:"thrash_index" doc:"tokens / computed prompt tokens"`
}

// Gate is what the gate did.
type Gate struct {
	Holds             int64        `json:"holds" doc:"times that an attempt was told to wait"`
	HeldAttempts      int64        `json:"held_attempts" doc:"attempts that were told to wait at least once"`
	UsageProbes       int64        `json:"usage_probes" doc:"probes of KV usage"`
	PrefixProbes      int64        `json:"prefix_probes" doc:"probes of resident prefixes"`
	Rejected          int64        `json:"rejected_attempts" doc:"attempts refused"`
	AttemptsPreempted int64        `json:"attempts_preempted" doc:"attempts that a newer attempt of the same session replaced at the gate"`
	WaitS             float64      `json:"wait_s" doc:"sum of the waits"`
	MaxWait           *float64     `json:"max_wait_s" doc:"longest wait (starvation)"`
	ByReason          []GateReason `json:"by_reason" doc:"waits by reason of admission, or of the last hold where there was none"`
}

// GateReason is the waits of the attempts with one admission reason.
type GateReason struct {
	Reason   string `json:"reason" doc:"reason of admission"`
	Attempts int64  `json:"attempts" doc:"attempts with it"`
	Held     int64  `json:"held" doc:"of these, held at least once"`
	Wait     Dist   `json:"wait_s" doc:"their waits, time at the gate of attempts that were never admitted included"`
}

// Engine is what the engines did.
type Engine struct {
	Admissions   int64    `json:"admissions" doc:"requests that the engines took in"`
	Preemptions  int64    `json:"preemptions" doc:"preemptions by the engines"`
	Steps        int64    `json:"steps" doc:"engine steps that computed something"`
	PrefillBusy  *float64 `json:"prefill_busy_share" doc:"share of the busy time that prefill tokens caused"`
	DecodeBusy   *float64 `json:"decode_busy_share" doc:"share of the busy time that decode tokens caused"`
	Pins         int64    `json:"pins" doc:"turns whose content was pinned when they had finished"`
	PinsExpired  int64    `json:"pins_expired" doc:"pins that ended in time"`
	PinsForRoom  int64    `json:"pins_for_room" doc:"pins given up because an engine needed the room"`
	PinnedTokenS float64  `json:"pinned_token_s" doc:"pinned tokens times seconds"`
	CPUTier      *CPUTier `json:"cpu_tier,omitempty" doc:"transfers between the GPUs and the CPU tier; absent without one"`
}

// CPUTier is what moved between the GPUs and the CPU tier; absent without one.
type CPUTier struct {
	CapacityTokens int64    `json:"capacity_tokens" doc:"size of the CPU tier of one replica"`
	LoadedTokens   int64    `json:"loaded_tokens" doc:"tokens loaded into GPU blocks"`
	StoredTokens   int64    `json:"stored_tokens" doc:"tokens stored from GPU blocks"`
	EvictedTokens  int64    `json:"evicted_tokens" doc:"tokens evicted from the CPU tier"`
	Loads          int64    `json:"loads" doc:"load transfers"`
	Stores         int64    `json:"stores" doc:"store transfers"`
	RefusedStores  int64    `json:"refused_stores" doc:"stores for which the CPU tier had no room"`
	Flushes        int64    `json:"flushes" doc:"stores that a step had to wait for"`
	LoadBusyS      float64  `json:"load_busy_s" doc:"time that links were busy loading, over all replicas"`
	StoreBusyS     float64  `json:"store_busy_s" doc:"likewise storing"`
	StallShare     *float64 `json:"stall_share" doc:"share of the busy time by which loads lengthened steps"`
}

// Leases counts admitted attempts by how they ended.
type Leases struct {
	Admitted  int64 `json:"admitted" doc:"leases given"`
	Finished  int64 `json:"finished" doc:"ended by completion"`
	Failed    int64 `json:"failed" doc:"ended by a failure"`
	Cancelled int64 `json:"cancelled" doc:"ended by the client"`
	Live      int64 `json:"live" doc:"alive at the end of the run; more than faults of the scenario leaked is an error"`
	Lost      int64 `json:"lost" doc:"of the admitted: a fault of the scenario kept their end from the policies"`
	Abandoned int64 `json:"abandoned" doc:"of the lost: ended since, when their replica restarted"`
}

// Bucket is one range of turn numbers or prompt lengths, both ends included; To is 0 in the open last range.
type Bucket struct {
	From    int64    `json:"from" doc:"first value of the range"`
	To      int64    `json:"to" doc:"last value of the range; 0 for no end"`
	Turns   int64    `json:"turns" doc:"finished turns"`
	TTFT    Dist     `json:"ttft_s" doc:"TTFT"`
	E2EL    Dist     `json:"e2el_s" doc:"turn latency"`
	TPOT    Dist     `json:"tpot_s" doc:"TPOT"`
	HitRate *float64 `json:"hit_rate" doc:"token-weighted hit rate"`
	Ceiling *float64 `json:"hit_ceiling" doc:"token-weighted ceiling"`
}
