from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORK_SOURCE_UNSPECIFIED: _ClassVar[WorkSource]
    WORK_SOURCE_CPU: _ClassVar[WorkSource]
    WORK_SOURCE_FILE: _ClassVar[WorkSource]
    WORK_SOURCE_PROMETHEUS: _ClassVar[WorkSource]
    WORK_SOURCE_COMMAND: _ClassVar[WorkSource]

class WorkFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORK_FAULT_UNSPECIFIED: _ClassVar[WorkFault]
    WORK_FAULT_NOT_READ: _ClassVar[WorkFault]
    WORK_FAULT_ABSENT: _ClassVar[WorkFault]
    WORK_FAULT_UNREADABLE: _ClassVar[WorkFault]
    WORK_FAULT_NO_NUMBER: _ClassVar[WorkFault]
    WORK_FAULT_NOT_FINITE: _ClassVar[WorkFault]
    WORK_FAULT_NEGATIVE: _ClassVar[WorkFault]
    WORK_FAULT_TOO_LARGE: _ClassVar[WorkFault]
    WORK_FAULT_FELL: _ClassVar[WorkFault]
    WORK_FAULT_CHANGED: _ClassVar[WorkFault]
    WORK_FAULT_LATE: _ClassVar[WorkFault]
    WORK_FAULT_FAILED: _ClassVar[WorkFault]
    WORK_FAULT_SILENT: _ClassVar[WorkFault]

class FaultKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_KIND_UNSPECIFIED: _ClassVar[FaultKind]
    FAULT_KIND_STALE: _ClassVar[FaultKind]
    FAULT_KIND_INVALID: _ClassVar[FaultKind]
    FAULT_KIND_LOST: _ClassVar[FaultKind]
    FAULT_KIND_OBSERVATION: _ClassVar[FaultKind]
    FAULT_KIND_RAISED: _ClassVar[FaultKind]
    FAULT_KIND_UNUSABLE: _ClassVar[FaultKind]
    FAULT_KIND_NOT_FINITE: _ClassVar[FaultKind]
    FAULT_KIND_LATE: _ClassVar[FaultKind]
    FAULT_KIND_OUT_OF_RANGE: _ClassVar[FaultKind]
    FAULT_KIND_WAITING: _ClassVar[FaultKind]

class Flaw(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLAW_UNSPECIFIED: _ClassVar[Flaw]
    FLAW_WRONG_TYPE: _ClassVar[Flaw]
    FLAW_OUT_OF_RANGE: _ClassVar[Flaw]
    FLAW_NOT_FINITE: _ClassVar[Flaw]
    FLAW_TOO_MANY_SLOTS: _ClassVar[Flaw]
    FLAW_EMPTY_ENTRY: _ClassVar[Flaw]

class Expected(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPECTED_UNSPECIFIED: _ClassVar[Expected]
    EXPECTED_DECISION: _ClassVar[Expected]
    EXPECTED_DESIRED_STATE: _ClassVar[Expected]
    EXPECTED_SLOT_DESIRE: _ClassVar[Expected]
    EXPECTED_TUNING: _ClassVar[Expected]
    EXPECTED_PROCESS: _ClassVar[Expected]
    EXPECTED_TUPLE: _ClassVar[Expected]
    EXPECTED_CPU_LIST: _ClassVar[Expected]
    EXPECTED_PROCESS_LIST: _ClassVar[Expected]
    EXPECTED_INTEGER: _ClassVar[Expected]
    EXPECTED_NUMBER: _ClassVar[Expected]
    EXPECTED_FLAG: _ClassVar[Expected]
    EXPECTED_TEXT: _ClassVar[Expected]
    EXPECTED_SHORT_TEXT: _ClassVar[Expected]
    EXPECTED_PAGE_ADVICE: _ClassVar[Expected]
    EXPECTED_FILE_PAGES: _ClassVar[Expected]
    EXPECTED_THREAD: _ClassVar[Expected]
    EXPECTED_THREAD_LIST: _ClassVar[Expected]

class Wish(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WISH_UNSPECIFIED: _ClassVar[Wish]
    WISH_SLOT: _ClassVar[Wish]
    WISH_PAUSE: _ClassVar[Wish]
    WISH_STOP: _ClassVar[Wish]
    WISH_TERMINATE: _ClassVar[Wish]
    WISH_LIMIT: _ClassVar[Wish]
    WISH_HARD_LIMIT: _ClassVar[Wish]
    WISH_SWAP_MAX: _ClassVar[Wish]
    WISH_RECLAIM: _ClassVar[Wish]
    WISH_MEMORY: _ClassVar[Wish]
    WISH_CPU_MAX: _ClassVar[Wish]
    WISH_IO_MAX: _ClassVar[Wish]
    WISH_NICE: _ClassVar[Wish]
    WISH_CPUS: _ClassVar[Wish]
    WISH_PAGE_ADVICE: _ClassVar[Wish]
    WISH_PROTECTED_LOW: _ClassVar[Wish]
    WISH_LEVER: _ClassVar[Wish]
    WISH_HOLD: _ClassVar[Wish]
    WISH_FILE_PAGES: _ClassVar[Wish]
    WISH_THREADS: _ClassVar[Wish]

class GuardRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GUARD_RULE_UNSPECIFIED: _ClassVar[GuardRule]
    GUARD_RULE_MAX_PAUSE: _ClassVar[GuardRule]
    GUARD_RULE_PAUSE_SHARE: _ClassVar[GuardRule]
    GUARD_RULE_MIN_RUN: _ClassVar[GuardRule]
    GUARD_RULE_PROTECTED_PROCESS: _ClassVar[GuardRule]
    GUARD_RULE_NOT_IN_SAMPLE: _ClassVar[GuardRule]
    GUARD_RULE_NOT_BACKGROUND: _ClassVar[GuardRule]
    GUARD_RULE_NOT_ALLOWED: _ClassVar[GuardRule]
    GUARD_RULE_SET_BY_OTHERS: _ClassVar[GuardRule]
    GUARD_RULE_DEMAND_UNKNOWN: _ClassVar[GuardRule]
    GUARD_RULE_USAGE_UNKNOWN: _ClassVar[GuardRule]
    GUARD_RULE_NO_TIME: _ClassVar[GuardRule]
    GUARD_RULE_FLOOR: _ClassVar[GuardRule]
    GUARD_RULE_ONE_LEVEL: _ClassVar[GuardRule]
    GUARD_RULE_ABOVE_USAGE: _ClassVar[GuardRule]
    GUARD_RULE_ABOVE_LIMIT: _ClassVar[GuardRule]
    GUARD_RULE_LIMIT_KILLED: _ClassVar[GuardRule]
    GUARD_RULE_BESIDE_HARD_LIMIT: _ClassVar[GuardRule]
    GUARD_RULE_MINIMUM: _ClassVar[GuardRule]
    GUARD_RULE_CPUS_OFFLINE: _ClassVar[GuardRule]
    GUARD_RULE_NO_CPU_ONLINE: _ClassVar[GuardRule]
    GUARD_RULE_STILL_RUNNING: _ClassVar[GuardRule]
    GUARD_RULE_ZONE_UNKNOWN: _ClassVar[GuardRule]
    GUARD_RULE_ZONE_MEMORY: _ClassVar[GuardRule]
    GUARD_RULE_NO_PRESSURE: _ClassVar[GuardRule]
    GUARD_RULE_LOWEST_WORKABLE: _ClassVar[GuardRule]
    GUARD_RULE_HARD_ALONE: _ClassVar[GuardRule]
    GUARD_RULE_POD_PAUSE: _ClassVar[GuardRule]
    GUARD_RULE_NOT_A_THREAD: _ClassVar[GuardRule]
    GUARD_RULE_THREAD_STEPS: _ClassVar[GuardRule]
    GUARD_RULE_TOTAL_SHARE: _ClassVar[GuardRule]
    GUARD_RULE_THREAD_STARVED: _ClassVar[GuardRule]

class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNIT_UNSPECIFIED: _ClassVar[Unit]
    UNIT_SECONDS: _ClassVar[Unit]
    UNIT_SHARE: _ClassVar[Unit]
    UNIT_BYTES: _ClassVar[Unit]
    UNIT_BYTES_PER_SECOND: _ClassVar[Unit]
    UNIT_CORES: _ClassVar[Unit]
    UNIT_CPUS: _ClassVar[Unit]
    UNIT_NICE: _ClassVar[Unit]
    UNIT_WEIGHT: _ClassVar[Unit]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_OFF: _ClassVar[Mode]
    MODE_SHADOW: _ClassVar[Mode]
    MODE_ACTIVE: _ClassVar[Mode]
    MODE_ADVICE: _ClassVar[Mode]

class ExperimentArm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPERIMENT_ARM_UNSPECIFIED: _ClassVar[ExperimentArm]
    EXPERIMENT_ARM_BASELINE: _ClassVar[ExperimentArm]
    EXPERIMENT_ARM_TREATMENT: _ClassVar[ExperimentArm]

class PrimaryMeasure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIMARY_MEASURE_UNSPECIFIED: _ClassVar[PrimaryMeasure]
    PRIMARY_MEASURE_P95: _ClassVar[PrimaryMeasure]
    PRIMARY_MEASURE_WORST: _ClassVar[PrimaryMeasure]
    PRIMARY_MEASURE_WORK: _ClassVar[PrimaryMeasure]
    PRIMARY_MEASURE_BLOCK_P95: _ClassVar[PrimaryMeasure]
    PRIMARY_MEASURE_BLOCK_P99: _ClassVar[PrimaryMeasure]

class BlockLoss(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLOCK_LOSS_UNSPECIFIED: _ClassVar[BlockLoss]
    BLOCK_LOSS_NO_REQUESTS: _ClassVar[BlockLoss]
    BLOCK_LOSS_LEASE: _ClassVar[BlockLoss]
    BLOCK_LOSS_OTHER_CONTROLLER: _ClassVar[BlockLoss]
    BLOCK_LOSS_LOOP_SILENT: _ClassVar[BlockLoss]
    BLOCK_LOSS_SERVICE_RESTARTED: _ClassVar[BlockLoss]

class ExperimentProgress(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPERIMENT_PROGRESS_UNSPECIFIED: _ClassVar[ExperimentProgress]
    EXPERIMENT_PROGRESS_RUNNING: _ClassVar[ExperimentProgress]
    EXPERIMENT_PROGRESS_COMPLETE: _ClassVar[ExperimentProgress]
    EXPERIMENT_PROGRESS_CERTAIN: _ClassVar[ExperimentProgress]
    EXPERIMENT_PROGRESS_GUARDRAIL: _ClassVar[ExperimentProgress]
    EXPERIMENT_PROGRESS_LOSSES: _ClassVar[ExperimentProgress]
    EXPERIMENT_PROGRESS_STOPPED: _ClassVar[ExperimentProgress]
WORK_SOURCE_UNSPECIFIED: WorkSource
WORK_SOURCE_CPU: WorkSource
WORK_SOURCE_FILE: WorkSource
WORK_SOURCE_PROMETHEUS: WorkSource
WORK_SOURCE_COMMAND: WorkSource
WORK_FAULT_UNSPECIFIED: WorkFault
WORK_FAULT_NOT_READ: WorkFault
WORK_FAULT_ABSENT: WorkFault
WORK_FAULT_UNREADABLE: WorkFault
WORK_FAULT_NO_NUMBER: WorkFault
WORK_FAULT_NOT_FINITE: WorkFault
WORK_FAULT_NEGATIVE: WorkFault
WORK_FAULT_TOO_LARGE: WorkFault
WORK_FAULT_FELL: WorkFault
WORK_FAULT_CHANGED: WorkFault
WORK_FAULT_LATE: WorkFault
WORK_FAULT_FAILED: WorkFault
WORK_FAULT_SILENT: WorkFault
FAULT_KIND_UNSPECIFIED: FaultKind
FAULT_KIND_STALE: FaultKind
FAULT_KIND_INVALID: FaultKind
FAULT_KIND_LOST: FaultKind
FAULT_KIND_OBSERVATION: FaultKind
FAULT_KIND_RAISED: FaultKind
FAULT_KIND_UNUSABLE: FaultKind
FAULT_KIND_NOT_FINITE: FaultKind
FAULT_KIND_LATE: FaultKind
FAULT_KIND_OUT_OF_RANGE: FaultKind
FAULT_KIND_WAITING: FaultKind
FLAW_UNSPECIFIED: Flaw
FLAW_WRONG_TYPE: Flaw
FLAW_OUT_OF_RANGE: Flaw
FLAW_NOT_FINITE: Flaw
FLAW_TOO_MANY_SLOTS: Flaw
FLAW_EMPTY_ENTRY: Flaw
EXPECTED_UNSPECIFIED: Expected
EXPECTED_DECISION: Expected
EXPECTED_DESIRED_STATE: Expected
EXPECTED_SLOT_DESIRE: Expected
EXPECTED_TUNING: Expected
EXPECTED_PROCESS: Expected
EXPECTED_TUPLE: Expected
EXPECTED_CPU_LIST: Expected
EXPECTED_PROCESS_LIST: Expected
EXPECTED_INTEGER: Expected
EXPECTED_NUMBER: Expected
EXPECTED_FLAG: Expected
EXPECTED_TEXT: Expected
EXPECTED_SHORT_TEXT: Expected
EXPECTED_PAGE_ADVICE: Expected
EXPECTED_FILE_PAGES: Expected
EXPECTED_THREAD: Expected
EXPECTED_THREAD_LIST: Expected
WISH_UNSPECIFIED: Wish
WISH_SLOT: Wish
WISH_PAUSE: Wish
WISH_STOP: Wish
WISH_TERMINATE: Wish
WISH_LIMIT: Wish
WISH_HARD_LIMIT: Wish
WISH_SWAP_MAX: Wish
WISH_RECLAIM: Wish
WISH_MEMORY: Wish
WISH_CPU_MAX: Wish
WISH_IO_MAX: Wish
WISH_NICE: Wish
WISH_CPUS: Wish
WISH_PAGE_ADVICE: Wish
WISH_PROTECTED_LOW: Wish
WISH_LEVER: Wish
WISH_HOLD: Wish
WISH_FILE_PAGES: Wish
WISH_THREADS: Wish
GUARD_RULE_UNSPECIFIED: GuardRule
GUARD_RULE_MAX_PAUSE: GuardRule
GUARD_RULE_PAUSE_SHARE: GuardRule
GUARD_RULE_MIN_RUN: GuardRule
GUARD_RULE_PROTECTED_PROCESS: GuardRule
GUARD_RULE_NOT_IN_SAMPLE: GuardRule
GUARD_RULE_NOT_BACKGROUND: GuardRule
GUARD_RULE_NOT_ALLOWED: GuardRule
GUARD_RULE_SET_BY_OTHERS: GuardRule
GUARD_RULE_DEMAND_UNKNOWN: GuardRule
GUARD_RULE_USAGE_UNKNOWN: GuardRule
GUARD_RULE_NO_TIME: GuardRule
GUARD_RULE_FLOOR: GuardRule
GUARD_RULE_ONE_LEVEL: GuardRule
GUARD_RULE_ABOVE_USAGE: GuardRule
GUARD_RULE_ABOVE_LIMIT: GuardRule
GUARD_RULE_LIMIT_KILLED: GuardRule
GUARD_RULE_BESIDE_HARD_LIMIT: GuardRule
GUARD_RULE_MINIMUM: GuardRule
GUARD_RULE_CPUS_OFFLINE: GuardRule
GUARD_RULE_NO_CPU_ONLINE: GuardRule
GUARD_RULE_STILL_RUNNING: GuardRule
GUARD_RULE_ZONE_UNKNOWN: GuardRule
GUARD_RULE_ZONE_MEMORY: GuardRule
GUARD_RULE_NO_PRESSURE: GuardRule
GUARD_RULE_LOWEST_WORKABLE: GuardRule
GUARD_RULE_HARD_ALONE: GuardRule
GUARD_RULE_POD_PAUSE: GuardRule
GUARD_RULE_NOT_A_THREAD: GuardRule
GUARD_RULE_THREAD_STEPS: GuardRule
GUARD_RULE_TOTAL_SHARE: GuardRule
GUARD_RULE_THREAD_STARVED: GuardRule
UNIT_UNSPECIFIED: Unit
UNIT_SECONDS: Unit
UNIT_SHARE: Unit
UNIT_BYTES: Unit
UNIT_BYTES_PER_SECOND: Unit
UNIT_CORES: Unit
UNIT_CPUS: Unit
UNIT_NICE: Unit
UNIT_WEIGHT: Unit
MODE_UNSPECIFIED: Mode
MODE_OFF: Mode
MODE_SHADOW: Mode
MODE_ACTIVE: Mode
MODE_ADVICE: Mode
EXPERIMENT_ARM_UNSPECIFIED: ExperimentArm
EXPERIMENT_ARM_BASELINE: ExperimentArm
EXPERIMENT_ARM_TREATMENT: ExperimentArm
PRIMARY_MEASURE_UNSPECIFIED: PrimaryMeasure
PRIMARY_MEASURE_P95: PrimaryMeasure
PRIMARY_MEASURE_WORST: PrimaryMeasure
PRIMARY_MEASURE_WORK: PrimaryMeasure
PRIMARY_MEASURE_BLOCK_P95: PrimaryMeasure
PRIMARY_MEASURE_BLOCK_P99: PrimaryMeasure
BLOCK_LOSS_UNSPECIFIED: BlockLoss
BLOCK_LOSS_NO_REQUESTS: BlockLoss
BLOCK_LOSS_LEASE: BlockLoss
BLOCK_LOSS_OTHER_CONTROLLER: BlockLoss
BLOCK_LOSS_LOOP_SILENT: BlockLoss
BLOCK_LOSS_SERVICE_RESTARTED: BlockLoss
EXPERIMENT_PROGRESS_UNSPECIFIED: ExperimentProgress
EXPERIMENT_PROGRESS_RUNNING: ExperimentProgress
EXPERIMENT_PROGRESS_COMPLETE: ExperimentProgress
EXPERIMENT_PROGRESS_CERTAIN: ExperimentProgress
EXPERIMENT_PROGRESS_GUARDRAIL: ExperimentProgress
EXPERIMENT_PROGRESS_LOSSES: ExperimentProgress
EXPERIMENT_PROGRESS_STOPPED: ExperimentProgress

class PsiTotals(_message.Message):
    __slots__ = ("memory_some_us", "memory_full_us", "io_some_us", "io_full_us", "cpu_some_us", "cpu_full_us")
    MEMORY_SOME_US_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FULL_US_FIELD_NUMBER: _ClassVar[int]
    IO_SOME_US_FIELD_NUMBER: _ClassVar[int]
    IO_FULL_US_FIELD_NUMBER: _ClassVar[int]
    CPU_SOME_US_FIELD_NUMBER: _ClassVar[int]
    CPU_FULL_US_FIELD_NUMBER: _ClassVar[int]
    memory_some_us: int
    memory_full_us: int
    io_some_us: int
    io_full_us: int
    cpu_some_us: int
    cpu_full_us: int
    def __init__(self, memory_some_us: _Optional[int] = ..., memory_full_us: _Optional[int] = ..., io_some_us: _Optional[int] = ..., io_full_us: _Optional[int] = ..., cpu_some_us: _Optional[int] = ..., cpu_full_us: _Optional[int] = ...) -> None: ...

class GroupSample(_message.Message):
    __slots__ = ("name", "psi", "memory_usage_bytes", "memory_limit_bytes", "anon_bytes", "file_bytes", "inactive_file_bytes", "swap_bytes", "dirty_bytes", "writeback_bytes", "refault_file_pages", "refault_anon_pages", "major_faults", "cpu_usage_us", "oom_kills", "frozen", "working_set_bytes", "high_events", "max_events", "cpu_throttled_us", "io_read_bytes", "io_written_bytes", "run_delay_us", "pss_bytes", "page_cache_hits", "page_cache_misses", "turn_read_s", "scanned_pages", "swap_room_bytes", "cpu_user_us")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PSI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANON_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIRTY_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITEBACK_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFAULT_FILE_PAGES_FIELD_NUMBER: _ClassVar[int]
    REFAULT_ANON_PAGES_FIELD_NUMBER: _ClassVar[int]
    MAJOR_FAULTS_FIELD_NUMBER: _ClassVar[int]
    CPU_USAGE_US_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    WORKING_SET_BYTES_FIELD_NUMBER: _ClassVar[int]
    HIGH_EVENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    CPU_THROTTLED_US_FIELD_NUMBER: _ClassVar[int]
    IO_READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    IO_WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_DELAY_US_FIELD_NUMBER: _ClassVar[int]
    PSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAGE_CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    PAGE_CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    TURN_READ_S_FIELD_NUMBER: _ClassVar[int]
    SCANNED_PAGES_FIELD_NUMBER: _ClassVar[int]
    SWAP_ROOM_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_USER_US_FIELD_NUMBER: _ClassVar[int]
    name: str
    psi: PsiTotals
    memory_usage_bytes: int
    memory_limit_bytes: int
    anon_bytes: int
    file_bytes: int
    inactive_file_bytes: int
    swap_bytes: int
    dirty_bytes: int
    writeback_bytes: int
    refault_file_pages: int
    refault_anon_pages: int
    major_faults: int
    cpu_usage_us: int
    oom_kills: int
    frozen: bool
    working_set_bytes: int
    high_events: int
    max_events: int
    cpu_throttled_us: int
    io_read_bytes: int
    io_written_bytes: int
    run_delay_us: int
    pss_bytes: int
    page_cache_hits: int
    page_cache_misses: int
    turn_read_s: float
    scanned_pages: int
    swap_room_bytes: int
    cpu_user_us: int
    def __init__(self, name: _Optional[str] = ..., psi: _Optional[_Union[PsiTotals, _Mapping]] = ..., memory_usage_bytes: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., anon_bytes: _Optional[int] = ..., file_bytes: _Optional[int] = ..., inactive_file_bytes: _Optional[int] = ..., swap_bytes: _Optional[int] = ..., dirty_bytes: _Optional[int] = ..., writeback_bytes: _Optional[int] = ..., refault_file_pages: _Optional[int] = ..., refault_anon_pages: _Optional[int] = ..., major_faults: _Optional[int] = ..., cpu_usage_us: _Optional[int] = ..., oom_kills: _Optional[int] = ..., frozen: bool = ..., working_set_bytes: _Optional[int] = ..., high_events: _Optional[int] = ..., max_events: _Optional[int] = ..., cpu_throttled_us: _Optional[int] = ..., io_read_bytes: _Optional[int] = ..., io_written_bytes: _Optional[int] = ..., run_delay_us: _Optional[int] = ..., pss_bytes: _Optional[int] = ..., page_cache_hits: _Optional[int] = ..., page_cache_misses: _Optional[int] = ..., turn_read_s: _Optional[float] = ..., scanned_pages: _Optional[int] = ..., swap_room_bytes: _Optional[int] = ..., cpu_user_us: _Optional[int] = ...) -> None: ...

class NodeSample(_message.Message):
    __slots__ = ("psi", "memory_total_bytes", "memory_available_bytes", "dirty_bytes", "writeback_bytes", "swap_total_bytes", "swap_free_bytes", "swap_in_pages", "swap_out_pages", "major_faults", "refault_file_pages", "refault_anon_pages", "scan_kswapd_pages", "scan_direct_pages", "steal_kswapd_pages", "steal_direct_pages", "allocation_stalls", "page_cache_hits", "page_cache_misses", "cpu_time_us", "cpu_idle_us")
    PSI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIRTY_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITEBACK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_IN_PAGES_FIELD_NUMBER: _ClassVar[int]
    SWAP_OUT_PAGES_FIELD_NUMBER: _ClassVar[int]
    MAJOR_FAULTS_FIELD_NUMBER: _ClassVar[int]
    REFAULT_FILE_PAGES_FIELD_NUMBER: _ClassVar[int]
    REFAULT_ANON_PAGES_FIELD_NUMBER: _ClassVar[int]
    SCAN_KSWAPD_PAGES_FIELD_NUMBER: _ClassVar[int]
    SCAN_DIRECT_PAGES_FIELD_NUMBER: _ClassVar[int]
    STEAL_KSWAPD_PAGES_FIELD_NUMBER: _ClassVar[int]
    STEAL_DIRECT_PAGES_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_STALLS_FIELD_NUMBER: _ClassVar[int]
    PAGE_CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    PAGE_CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    CPU_TIME_US_FIELD_NUMBER: _ClassVar[int]
    CPU_IDLE_US_FIELD_NUMBER: _ClassVar[int]
    psi: PsiTotals
    memory_total_bytes: int
    memory_available_bytes: int
    dirty_bytes: int
    writeback_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    swap_in_pages: int
    swap_out_pages: int
    major_faults: int
    refault_file_pages: int
    refault_anon_pages: int
    scan_kswapd_pages: int
    scan_direct_pages: int
    steal_kswapd_pages: int
    steal_direct_pages: int
    allocation_stalls: int
    page_cache_hits: int
    page_cache_misses: int
    cpu_time_us: int
    cpu_idle_us: int
    def __init__(self, psi: _Optional[_Union[PsiTotals, _Mapping]] = ..., memory_total_bytes: _Optional[int] = ..., memory_available_bytes: _Optional[int] = ..., dirty_bytes: _Optional[int] = ..., writeback_bytes: _Optional[int] = ..., swap_total_bytes: _Optional[int] = ..., swap_free_bytes: _Optional[int] = ..., swap_in_pages: _Optional[int] = ..., swap_out_pages: _Optional[int] = ..., major_faults: _Optional[int] = ..., refault_file_pages: _Optional[int] = ..., refault_anon_pages: _Optional[int] = ..., scan_kswapd_pages: _Optional[int] = ..., scan_direct_pages: _Optional[int] = ..., steal_kswapd_pages: _Optional[int] = ..., steal_direct_pages: _Optional[int] = ..., allocation_stalls: _Optional[int] = ..., page_cache_hits: _Optional[int] = ..., page_cache_misses: _Optional[int] = ..., cpu_time_us: _Optional[int] = ..., cpu_idle_us: _Optional[int] = ...) -> None: ...

class LatencyHistogram(_message.Message):
    __slots__ = ("buckets", "counts")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, buckets: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class LatencySample(_message.Message):
    __slots__ = ("window_s", "completed", "completed_total", "mean_ms", "p95_ms", "max_ms", "last_completion_age_s", "new_requests")
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MEAN_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMPLETION_AGE_S_FIELD_NUMBER: _ClassVar[int]
    NEW_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    window_s: float
    completed: int
    completed_total: int
    mean_ms: float
    p95_ms: float
    max_ms: float
    last_completion_age_s: float
    new_requests: LatencyHistogram
    def __init__(self, window_s: _Optional[float] = ..., completed: _Optional[int] = ..., completed_total: _Optional[int] = ..., mean_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., max_ms: _Optional[float] = ..., last_completion_age_s: _Optional[float] = ..., new_requests: _Optional[_Union[LatencyHistogram, _Mapping]] = ...) -> None: ...

class ProcessSample(_message.Message):
    __slots__ = ("pid", "start_time_ticks", "slot", "oom_score", "stopped", "rss_bytes", "pss_bytes", "anon_bytes", "file_bytes", "swap_bytes", "run_delay_us", "page_cache_hits", "page_cache_misses", "read_s")
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_TICKS_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    OOM_SCORE_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    PSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANON_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_DELAY_US_FIELD_NUMBER: _ClassVar[int]
    PAGE_CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    PAGE_CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    READ_S_FIELD_NUMBER: _ClassVar[int]
    pid: int
    start_time_ticks: int
    slot: int
    oom_score: int
    stopped: bool
    rss_bytes: int
    pss_bytes: int
    anon_bytes: int
    file_bytes: int
    swap_bytes: int
    run_delay_us: int
    page_cache_hits: int
    page_cache_misses: int
    read_s: float
    def __init__(self, pid: _Optional[int] = ..., start_time_ticks: _Optional[int] = ..., slot: _Optional[int] = ..., oom_score: _Optional[int] = ..., stopped: bool = ..., rss_bytes: _Optional[int] = ..., pss_bytes: _Optional[int] = ..., anon_bytes: _Optional[int] = ..., file_bytes: _Optional[int] = ..., swap_bytes: _Optional[int] = ..., run_delay_us: _Optional[int] = ..., page_cache_hits: _Optional[int] = ..., page_cache_misses: _Optional[int] = ..., read_s: _Optional[float] = ...) -> None: ...

class ThreadSample(_message.Message):
    __slots__ = ("pid", "tid", "start_time_ticks", "state", "cpu", "run_us", "wait_us", "voluntary_switches", "involuntary_switches", "nice", "slice_us", "cpus", "application")
    PID_FIELD_NUMBER: _ClassVar[int]
    TID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_TICKS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    RUN_US_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    VOLUNTARY_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    INVOLUNTARY_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    SLICE_US_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    pid: int
    tid: int
    start_time_ticks: int
    state: str
    cpu: int
    run_us: int
    wait_us: int
    voluntary_switches: int
    involuntary_switches: int
    nice: int
    slice_us: int
    cpus: _containers.RepeatedScalarFieldContainer[int]
    application: int
    def __init__(self, pid: _Optional[int] = ..., tid: _Optional[int] = ..., start_time_ticks: _Optional[int] = ..., state: _Optional[str] = ..., cpu: _Optional[int] = ..., run_us: _Optional[int] = ..., wait_us: _Optional[int] = ..., voluntary_switches: _Optional[int] = ..., involuntary_switches: _Optional[int] = ..., nice: _Optional[int] = ..., slice_us: _Optional[int] = ..., cpus: _Optional[_Iterable[int]] = ..., application: _Optional[int] = ...) -> None: ...

class LeverState(_message.Message):
    __slots__ = ("lever", "value", "held_for_s", "foreign")
    LEVER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HELD_FOR_S_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    lever: str
    value: str
    held_for_s: float
    foreign: bool
    def __init__(self, lever: _Optional[str] = ..., value: _Optional[str] = ..., held_for_s: _Optional[float] = ..., foreign: bool = ...) -> None: ...

class SlotState(_message.Message):
    __slots__ = ("paused", "paused_for_s", "since_thaw_s", "paused_share", "limit_bytes", "reference_bytes", "memory_waits", "longest_pause_s", "shortest_run_s", "least_limit_bytes")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FOR_S_FIELD_NUMBER: _ClassVar[int]
    SINCE_THAW_S_FIELD_NUMBER: _ClassVar[int]
    PAUSED_SHARE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_WAITS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_PAUSE_S_FIELD_NUMBER: _ClassVar[int]
    SHORTEST_RUN_S_FIELD_NUMBER: _ClassVar[int]
    LEAST_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    paused_for_s: float
    since_thaw_s: float
    paused_share: float
    limit_bytes: int
    reference_bytes: int
    memory_waits: int
    longest_pause_s: float
    shortest_run_s: float
    least_limit_bytes: int
    def __init__(self, paused: bool = ..., paused_for_s: _Optional[float] = ..., since_thaw_s: _Optional[float] = ..., paused_share: _Optional[float] = ..., limit_bytes: _Optional[int] = ..., reference_bytes: _Optional[int] = ..., memory_waits: _Optional[int] = ..., longest_pause_s: _Optional[float] = ..., shortest_run_s: _Optional[float] = ..., least_limit_bytes: _Optional[int] = ...) -> None: ...

class WorkSample(_message.Message):
    __slots__ = ("slot", "source", "unit", "units", "known_s", "read_s", "fault")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_S_FIELD_NUMBER: _ClassVar[int]
    READ_S_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    source: WorkSource
    unit: str
    units: float
    known_s: float
    read_s: float
    fault: WorkFault
    def __init__(self, slot: _Optional[int] = ..., source: _Optional[_Union[WorkSource, str]] = ..., unit: _Optional[str] = ..., units: _Optional[float] = ..., known_s: _Optional[float] = ..., read_s: _Optional[float] = ..., fault: _Optional[_Union[WorkFault, str]] = ...) -> None: ...

class ApplicationSample(_message.Message):
    __slots__ = ("name", "slo_ms", "group", "latency")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    name: str
    slo_ms: float
    group: GroupSample
    latency: LatencySample
    def __init__(self, name: _Optional[str] = ..., slo_ms: _Optional[float] = ..., group: _Optional[_Union[GroupSample, _Mapping]] = ..., latency: _Optional[_Union[LatencySample, _Mapping]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("sequence", "time_s", "node", "zone", "protected", "slots", "slot_states", "latency", "processes", "processes_known", "profile", "levers", "work", "applications", "protected_threads", "protected_threads_known")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOT_STATES_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_KNOWN_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    LEVERS_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_THREADS_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_THREADS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time_s: float
    node: NodeSample
    zone: GroupSample
    protected: GroupSample
    slots: _containers.RepeatedCompositeFieldContainer[GroupSample]
    slot_states: _containers.RepeatedCompositeFieldContainer[SlotState]
    latency: LatencySample
    processes: _containers.RepeatedCompositeFieldContainer[ProcessSample]
    processes_known: bool
    profile: str
    levers: _containers.RepeatedCompositeFieldContainer[LeverState]
    work: _containers.RepeatedCompositeFieldContainer[WorkSample]
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationSample]
    protected_threads: _containers.RepeatedCompositeFieldContainer[ThreadSample]
    protected_threads_known: bool
    def __init__(self, sequence: _Optional[int] = ..., time_s: _Optional[float] = ..., node: _Optional[_Union[NodeSample, _Mapping]] = ..., zone: _Optional[_Union[GroupSample, _Mapping]] = ..., protected: _Optional[_Union[GroupSample, _Mapping]] = ..., slots: _Optional[_Iterable[_Union[GroupSample, _Mapping]]] = ..., slot_states: _Optional[_Iterable[_Union[SlotState, _Mapping]]] = ..., latency: _Optional[_Union[LatencySample, _Mapping]] = ..., processes: _Optional[_Iterable[_Union[ProcessSample, _Mapping]]] = ..., processes_known: bool = ..., profile: _Optional[str] = ..., levers: _Optional[_Iterable[_Union[LeverState, _Mapping]]] = ..., work: _Optional[_Iterable[_Union[WorkSample, _Mapping]]] = ..., applications: _Optional[_Iterable[_Union[ApplicationSample, _Mapping]]] = ..., protected_threads: _Optional[_Iterable[_Union[ThreadSample, _Mapping]]] = ..., protected_threads_known: bool = ...) -> None: ...

class Tuning(_message.Message):
    __slots__ = ("name", "swappiness", "protected_swappiness", "dirty_background_ratio", "dirty_ratio", "overcommit_memory")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SWAPPINESS_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_SWAPPINESS_FIELD_NUMBER: _ClassVar[int]
    DIRTY_BACKGROUND_RATIO_FIELD_NUMBER: _ClassVar[int]
    DIRTY_RATIO_FIELD_NUMBER: _ClassVar[int]
    OVERCOMMIT_MEMORY_FIELD_NUMBER: _ClassVar[int]
    name: str
    swappiness: int
    protected_swappiness: int
    dirty_background_ratio: float
    dirty_ratio: float
    overcommit_memory: int
    def __init__(self, name: _Optional[str] = ..., swappiness: _Optional[int] = ..., protected_swappiness: _Optional[int] = ..., dirty_background_ratio: _Optional[float] = ..., dirty_ratio: _Optional[float] = ..., overcommit_memory: _Optional[int] = ...) -> None: ...

class SlotDesire(_message.Message):
    __slots__ = ("paused", "limit_bytes", "hard_limit_bytes", "swap_max_bytes", "reclaim_to_bytes", "cpu_weight", "cpu_max_cores", "io_weight", "io_max_bytes_per_s", "nice", "cpus", "page_advice", "terminated")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    HARD_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECLAIM_TO_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CPU_MAX_CORES_FIELD_NUMBER: _ClassVar[int]
    IO_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IO_MAX_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    PAGE_ADVICE_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    limit_bytes: int
    hard_limit_bytes: int
    swap_max_bytes: int
    reclaim_to_bytes: int
    cpu_weight: int
    cpu_max_cores: float
    io_weight: int
    io_max_bytes_per_s: int
    nice: int
    cpus: _containers.RepeatedScalarFieldContainer[int]
    page_advice: str
    terminated: bool
    def __init__(self, paused: bool = ..., limit_bytes: _Optional[int] = ..., hard_limit_bytes: _Optional[int] = ..., swap_max_bytes: _Optional[int] = ..., reclaim_to_bytes: _Optional[int] = ..., cpu_weight: _Optional[int] = ..., cpu_max_cores: _Optional[float] = ..., io_weight: _Optional[int] = ..., io_max_bytes_per_s: _Optional[int] = ..., nice: _Optional[int] = ..., cpus: _Optional[_Iterable[int]] = ..., page_advice: _Optional[str] = ..., terminated: bool = ...) -> None: ...

class ProcessRef(_message.Message):
    __slots__ = ("pid", "start_time_ticks")
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_TICKS_FIELD_NUMBER: _ClassVar[int]
    pid: int
    start_time_ticks: int
    def __init__(self, pid: _Optional[int] = ..., start_time_ticks: _Optional[int] = ...) -> None: ...

class FilePages(_message.Message):
    __slots__ = ("action", "victim", "scope", "grab_pages", "writeback")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    GRAB_PAGES_FIELD_NUMBER: _ClassVar[int]
    WRITEBACK_FIELD_NUMBER: _ClassVar[int]
    action: str
    victim: str
    scope: str
    grab_pages: int
    writeback: bool
    def __init__(self, action: _Optional[str] = ..., victim: _Optional[str] = ..., scope: _Optional[str] = ..., grab_pages: _Optional[int] = ..., writeback: bool = ...) -> None: ...

class ThreadRef(_message.Message):
    __slots__ = ("tid", "start_time_ticks")
    TID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_TICKS_FIELD_NUMBER: _ClassVar[int]
    tid: int
    start_time_ticks: int
    def __init__(self, tid: _Optional[int] = ..., start_time_ticks: _Optional[int] = ...) -> None: ...

class ThreadDesire(_message.Message):
    __slots__ = ("thread", "slice_us", "nice", "cpus")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    SLICE_US_FIELD_NUMBER: _ClassVar[int]
    NICE_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    thread: ThreadRef
    slice_us: int
    nice: int
    cpus: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, thread: _Optional[_Union[ThreadRef, _Mapping]] = ..., slice_us: _Optional[int] = ..., nice: _Optional[int] = ..., cpus: _Optional[_Iterable[int]] = ...) -> None: ...

class ApplicationDesire(_message.Message):
    __slots__ = ("low_bytes", "swappiness")
    LOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAPPINESS_FIELD_NUMBER: _ClassVar[int]
    low_bytes: int
    swappiness: int
    def __init__(self, low_bytes: _Optional[int] = ..., swappiness: _Optional[int] = ...) -> None: ...

class DesiredState(_message.Message):
    __slots__ = ("slots", "tuning", "stopped", "terminate", "protect_from_oom", "protected_low_bytes", "protected_willneed", "applications", "kill_at_once", "file_pages", "protected_threads")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TUNING_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    TERMINATE_FIELD_NUMBER: _ClassVar[int]
    PROTECT_FROM_OOM_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_LOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_WILLNEED_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    KILL_AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    FILE_PAGES_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_THREADS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedCompositeFieldContainer[SlotDesire]
    tuning: Tuning
    stopped: _containers.RepeatedCompositeFieldContainer[ProcessRef]
    terminate: ProcessRef
    protect_from_oom: bool
    protected_low_bytes: int
    protected_willneed: bool
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationDesire]
    kill_at_once: bool
    file_pages: FilePages
    protected_threads: _containers.RepeatedCompositeFieldContainer[ThreadDesire]
    def __init__(self, slots: _Optional[_Iterable[_Union[SlotDesire, _Mapping]]] = ..., tuning: _Optional[_Union[Tuning, _Mapping]] = ..., stopped: _Optional[_Iterable[_Union[ProcessRef, _Mapping]]] = ..., terminate: _Optional[_Union[ProcessRef, _Mapping]] = ..., protect_from_oom: bool = ..., protected_low_bytes: _Optional[int] = ..., protected_willneed: bool = ..., applications: _Optional[_Iterable[_Union[ApplicationDesire, _Mapping]]] = ..., kill_at_once: bool = ..., file_pages: _Optional[_Union[FilePages, _Mapping]] = ..., protected_threads: _Optional[_Iterable[_Union[ThreadDesire, _Mapping]]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("controller", "desired", "reason", "action", "propensity", "score", "leased")
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PROPENSITY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    controller: str
    desired: DesiredState
    reason: str
    action: _containers.RepeatedScalarFieldContainer[int]
    propensity: float
    score: float
    leased: bool
    def __init__(self, controller: _Optional[str] = ..., desired: _Optional[_Union[DesiredState, _Mapping]] = ..., reason: _Optional[str] = ..., action: _Optional[_Iterable[int]] = ..., propensity: _Optional[float] = ..., score: _Optional[float] = ..., leased: bool = ...) -> None: ...

class LeverResult(_message.Message):
    __slots__ = ("lever", "value", "ok", "error", "took_ms", "dry_run", "missing")
    LEVER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    lever: str
    value: str
    ok: bool
    error: str
    took_ms: float
    dry_run: bool
    missing: bool
    def __init__(self, lever: _Optional[str] = ..., value: _Optional[str] = ..., ok: bool = ..., error: _Optional[str] = ..., took_ms: _Optional[float] = ..., dry_run: bool = ..., missing: bool = ...) -> None: ...

class TickTimings(_message.Message):
    __slots__ = ("late_ms", "sense_ms", "observe_ms", "decide_ms", "guard_ms", "apply_ms")
    LATE_MS_FIELD_NUMBER: _ClassVar[int]
    SENSE_MS_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_MS_FIELD_NUMBER: _ClassVar[int]
    DECIDE_MS_FIELD_NUMBER: _ClassVar[int]
    GUARD_MS_FIELD_NUMBER: _ClassVar[int]
    APPLY_MS_FIELD_NUMBER: _ClassVar[int]
    late_ms: float
    sense_ms: float
    observe_ms: float
    decide_ms: float
    guard_ms: float
    apply_ms: float
    def __init__(self, late_ms: _Optional[float] = ..., sense_ms: _Optional[float] = ..., observe_ms: _Optional[float] = ..., decide_ms: _Optional[float] = ..., guard_ms: _Optional[float] = ..., apply_ms: _Optional[float] = ...) -> None: ...

class TickRecord(_message.Message):
    __slots__ = ("sequence", "time_s", "wall_time_s", "sample", "observation", "decision", "granted", "applied", "timings", "mode", "shadow", "fallback", "reasons", "slo_ms", "circumstances")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    CIRCUMSTANCES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time_s: float
    wall_time_s: float
    sample: Sample
    observation: _containers.RepeatedScalarFieldContainer[float]
    decision: Decision
    granted: DesiredState
    applied: _containers.RepeatedCompositeFieldContainer[LeverResult]
    timings: TickTimings
    mode: Mode
    shadow: Decision
    fallback: bool
    reasons: Reasons
    slo_ms: float
    circumstances: Circumstances
    def __init__(self, sequence: _Optional[int] = ..., time_s: _Optional[float] = ..., wall_time_s: _Optional[float] = ..., sample: _Optional[_Union[Sample, _Mapping]] = ..., observation: _Optional[_Iterable[float]] = ..., decision: _Optional[_Union[Decision, _Mapping]] = ..., granted: _Optional[_Union[DesiredState, _Mapping]] = ..., applied: _Optional[_Iterable[_Union[LeverResult, _Mapping]]] = ..., timings: _Optional[_Union[TickTimings, _Mapping]] = ..., mode: _Optional[_Union[Mode, str]] = ..., shadow: _Optional[_Union[Decision, _Mapping]] = ..., fallback: bool = ..., reasons: _Optional[_Union[Reasons, _Mapping]] = ..., slo_ms: _Optional[float] = ..., circumstances: _Optional[_Union[Circumstances, _Mapping]] = ...) -> None: ...

class Reasons(_message.Message):
    __slots__ = ("fault", "default_fault", "watched_fault", "changes", "changes_left_out")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FAULT_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FAULT_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    default_fault: Fault
    watched_fault: Fault
    changes: _containers.RepeatedCompositeFieldContainer[GuardChange]
    changes_left_out: int
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ..., default_fault: _Optional[_Union[Fault, _Mapping]] = ..., watched_fault: _Optional[_Union[Fault, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[GuardChange, _Mapping]]] = ..., changes_left_out: _Optional[int] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("controller", "kind", "time_stood_still", "sample_too_old", "wrong_slots", "time_not_finite", "total_went_back", "no_sample", "not_observable", "signal_lost", "feature_not_finite", "controller_raised", "decision_unfit", "decision_late", "outside_training", "waiting")
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_STOOD_STILL_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_TOO_OLD_FIELD_NUMBER: _ClassVar[int]
    WRONG_SLOTS_FIELD_NUMBER: _ClassVar[int]
    TIME_NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_WENT_BACK_FIELD_NUMBER: _ClassVar[int]
    NO_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    NOT_OBSERVABLE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_LOST_FIELD_NUMBER: _ClassVar[int]
    FEATURE_NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_RAISED_FIELD_NUMBER: _ClassVar[int]
    DECISION_UNFIT_FIELD_NUMBER: _ClassVar[int]
    DECISION_LATE_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_TRAINING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    controller: str
    kind: FaultKind
    time_stood_still: TimeStoodStill
    sample_too_old: SampleTooOld
    wrong_slots: WrongSlots
    time_not_finite: TimeNotFinite
    total_went_back: TotalWentBack
    no_sample: NoSample
    not_observable: NotObservable
    signal_lost: SignalLost
    feature_not_finite: FeatureNotFinite
    controller_raised: ControllerRaised
    decision_unfit: Problem
    decision_late: DecisionLate
    outside_training: OutsideTraining
    waiting: Waiting
    def __init__(self, controller: _Optional[str] = ..., kind: _Optional[_Union[FaultKind, str]] = ..., time_stood_still: _Optional[_Union[TimeStoodStill, _Mapping]] = ..., sample_too_old: _Optional[_Union[SampleTooOld, _Mapping]] = ..., wrong_slots: _Optional[_Union[WrongSlots, _Mapping]] = ..., time_not_finite: _Optional[_Union[TimeNotFinite, _Mapping]] = ..., total_went_back: _Optional[_Union[TotalWentBack, _Mapping]] = ..., no_sample: _Optional[_Union[NoSample, _Mapping]] = ..., not_observable: _Optional[_Union[NotObservable, _Mapping]] = ..., signal_lost: _Optional[_Union[SignalLost, _Mapping]] = ..., feature_not_finite: _Optional[_Union[FeatureNotFinite, _Mapping]] = ..., controller_raised: _Optional[_Union[ControllerRaised, _Mapping]] = ..., decision_unfit: _Optional[_Union[Problem, _Mapping]] = ..., decision_late: _Optional[_Union[DecisionLate, _Mapping]] = ..., outside_training: _Optional[_Union[OutsideTraining, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ...) -> None: ...

class TimeStoodStill(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SampleTooOld(_message.Message):
    __slots__ = ("age_s", "limit_s")
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    age_s: float
    limit_s: float
    def __init__(self, age_s: _Optional[float] = ..., limit_s: _Optional[float] = ...) -> None: ...

class WrongSlots(_message.Message):
    __slots__ = ("slots", "states", "expected")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    slots: int
    states: int
    expected: int
    def __init__(self, slots: _Optional[int] = ..., states: _Optional[int] = ..., expected: _Optional[int] = ...) -> None: ...

class TimeNotFinite(_message.Message):
    __slots__ = ("time_s",)
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    time_s: float
    def __init__(self, time_s: _Optional[float] = ...) -> None: ...

class TotalWentBack(_message.Message):
    __slots__ = ("signal",)
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    signal: str
    def __init__(self, signal: _Optional[str] = ...) -> None: ...

class NoSample(_message.Message):
    __slots__ = ("ticks",)
    TICKS_FIELD_NUMBER: _ClassVar[int]
    ticks: int
    def __init__(self, ticks: _Optional[int] = ...) -> None: ...

class NotObservable(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class SignalLost(_message.Message):
    __slots__ = ("signal",)
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    signal: str
    def __init__(self, signal: _Optional[str] = ...) -> None: ...

class FeatureNotFinite(_message.Message):
    __slots__ = ("feature",)
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    feature: str
    def __init__(self, feature: _Optional[str] = ...) -> None: ...

class ControllerRaised(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class DecisionLate(_message.Message):
    __slots__ = ("took_s", "limit_s")
    TOOK_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    took_s: float
    limit_s: float
    def __init__(self, took_s: _Optional[float] = ..., limit_s: _Optional[float] = ...) -> None: ...

class OutsideTraining(_message.Message):
    __slots__ = ("score", "limit")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    score: float
    limit: float
    def __init__(self, score: _Optional[float] = ..., limit: _Optional[float] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("good_ticks", "needed_ticks")
    GOOD_TICKS_FIELD_NUMBER: _ClassVar[int]
    NEEDED_TICKS_FIELD_NUMBER: _ClassVar[int]
    good_ticks: int
    needed_ticks: int
    def __init__(self, good_ticks: _Optional[int] = ..., needed_ticks: _Optional[int] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("flaw", "field", "value", "expected", "low", "high", "slot")
    FLAW_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    flaw: Flaw
    field: str
    value: str
    expected: Expected
    low: float
    high: float
    slot: int
    def __init__(self, flaw: _Optional[_Union[Flaw, str]] = ..., field: _Optional[str] = ..., value: _Optional[str] = ..., expected: _Optional[_Union[Expected, str]] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., slot: _Optional[int] = ...) -> None: ...

class GuardChange(_message.Message):
    __slots__ = ("rule", "wish", "slot", "group", "pid", "protected_pid", "lever", "found", "bound", "unit", "tid")
    RULE_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_PID_FIELD_NUMBER: _ClassVar[int]
    LEVER_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    TID_FIELD_NUMBER: _ClassVar[int]
    rule: GuardRule
    wish: Wish
    slot: int
    group: str
    pid: int
    protected_pid: int
    lever: str
    found: float
    bound: float
    unit: Unit
    tid: int
    def __init__(self, rule: _Optional[_Union[GuardRule, str]] = ..., wish: _Optional[_Union[Wish, str]] = ..., slot: _Optional[int] = ..., group: _Optional[str] = ..., pid: _Optional[int] = ..., protected_pid: _Optional[int] = ..., lever: _Optional[str] = ..., found: _Optional[float] = ..., bound: _Optional[float] = ..., unit: _Optional[_Union[Unit, str]] = ..., tid: _Optional[int] = ...) -> None: ...

class Circumstances(_message.Message):
    __slots__ = ("sample_age_s", "horizon_s", "blind_ticks")
    SAMPLE_AGE_S_FIELD_NUMBER: _ClassVar[int]
    HORIZON_S_FIELD_NUMBER: _ClassVar[int]
    BLIND_TICKS_FIELD_NUMBER: _ClassVar[int]
    sample_age_s: float
    horizon_s: float
    blind_ticks: int
    def __init__(self, sample_age_s: _Optional[float] = ..., horizon_s: _Optional[float] = ..., blind_ticks: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyStatus(_message.Message):
    __slots__ = ("name", "path", "schema_hash", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_HASH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    schema_hash: str
    sha256: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., schema_hash: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("version", "node_kind", "controller", "mode", "policy", "slots", "lease_held", "lease_remaining_s", "last_tick", "ticks", "records_dropped", "refused", "missing", "uptime_s", "loop_restarts", "calm", "fallbacks", "stepped_aside", "latency_source", "hold_budget", "canary", "experiment", "slo_ms", "work_sources", "slot_pods", "met_s", "missed_s", "problems", "plugged_levers", "applications")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class FallbacksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_KIND_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_HELD_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    LOOP_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    CALM_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    STEPPED_ASIDE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    HOLD_BUDGET_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    WORK_SOURCES_FIELD_NUMBER: _ClassVar[int]
    SLOT_PODS_FIELD_NUMBER: _ClassVar[int]
    MET_S_FIELD_NUMBER: _ClassVar[int]
    MISSED_S_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    PLUGGED_LEVERS_FIELD_NUMBER: _ClassVar[int]
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    version: str
    node_kind: str
    controller: str
    mode: Mode
    policy: PolicyStatus
    slots: _containers.RepeatedScalarFieldContainer[str]
    lease_held: bool
    lease_remaining_s: float
    last_tick: TickRecord
    ticks: int
    records_dropped: int
    refused: _containers.ScalarMap[str, int]
    missing: _containers.RepeatedScalarFieldContainer[str]
    uptime_s: float
    loop_restarts: int
    calm: bool
    fallbacks: _containers.ScalarMap[str, int]
    stepped_aside: int
    latency_source: LatencySourceStatus
    hold_budget: HoldBudgetStatus
    canary: CanaryStatus
    experiment: ExperimentPhase
    slo_ms: float
    work_sources: _containers.RepeatedCompositeFieldContainer[WorkSourceStatus]
    slot_pods: _containers.RepeatedCompositeFieldContainer[SlotPods]
    met_s: float
    missed_s: float
    problems: _containers.RepeatedScalarFieldContainer[str]
    plugged_levers: _containers.RepeatedScalarFieldContainer[str]
    applications: _containers.RepeatedCompositeFieldContainer[ApplicationStatus]
    def __init__(self, version: _Optional[str] = ..., node_kind: _Optional[str] = ..., controller: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., policy: _Optional[_Union[PolicyStatus, _Mapping]] = ..., slots: _Optional[_Iterable[str]] = ..., lease_held: bool = ..., lease_remaining_s: _Optional[float] = ..., last_tick: _Optional[_Union[TickRecord, _Mapping]] = ..., ticks: _Optional[int] = ..., records_dropped: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ..., missing: _Optional[_Iterable[str]] = ..., uptime_s: _Optional[float] = ..., loop_restarts: _Optional[int] = ..., calm: bool = ..., fallbacks: _Optional[_Mapping[str, int]] = ..., stepped_aside: _Optional[int] = ..., latency_source: _Optional[_Union[LatencySourceStatus, _Mapping]] = ..., hold_budget: _Optional[_Union[HoldBudgetStatus, _Mapping]] = ..., canary: _Optional[_Union[CanaryStatus, _Mapping]] = ..., experiment: _Optional[_Union[ExperimentPhase, _Mapping]] = ..., slo_ms: _Optional[float] = ..., work_sources: _Optional[_Iterable[_Union[WorkSourceStatus, _Mapping]]] = ..., slot_pods: _Optional[_Iterable[_Union[SlotPods, _Mapping]]] = ..., met_s: _Optional[float] = ..., missed_s: _Optional[float] = ..., problems: _Optional[_Iterable[str]] = ..., plugged_levers: _Optional[_Iterable[str]] = ..., applications: _Optional[_Iterable[_Union[ApplicationStatus, _Mapping]]] = ...) -> None: ...

class ApplicationStatus(_message.Message):
    __slots__ = ("name", "slo_ms", "latency_source", "met_s", "missed_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    MET_S_FIELD_NUMBER: _ClassVar[int]
    MISSED_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    slo_ms: float
    latency_source: LatencySourceStatus
    met_s: float
    missed_s: float
    def __init__(self, name: _Optional[str] = ..., slo_ms: _Optional[float] = ..., latency_source: _Optional[_Union[LatencySourceStatus, _Mapping]] = ..., met_s: _Optional[float] = ..., missed_s: _Optional[float] = ...) -> None: ...

class SlotPods(_message.Message):
    __slots__ = ("pods",)
    PODS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pods: _Optional[_Iterable[str]] = ...) -> None: ...

class CanaryStatus(_message.Message):
    __slots__ = ("watching", "left_s", "attainment", "attainment_before", "returned")
    WATCHING_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    ATTAINMENT_FIELD_NUMBER: _ClassVar[int]
    ATTAINMENT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    watching: bool
    left_s: float
    attainment: float
    attainment_before: float
    returned: str
    def __init__(self, watching: bool = ..., left_s: _Optional[float] = ..., attainment: _Optional[float] = ..., attainment_before: _Optional[float] = ..., returned: _Optional[str] = ...) -> None: ...

class HoldBudgetStatus(_message.Message):
    __slots__ = ("used_s", "allowed_s", "refusing", "since_pressure_s")
    USED_S_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_S_FIELD_NUMBER: _ClassVar[int]
    REFUSING_FIELD_NUMBER: _ClassVar[int]
    SINCE_PRESSURE_S_FIELD_NUMBER: _ClassVar[int]
    used_s: float
    allowed_s: float
    refusing: bool
    since_pressure_s: float
    def __init__(self, used_s: _Optional[float] = ..., allowed_s: _Optional[float] = ..., refusing: bool = ..., since_pressure_s: _Optional[float] = ...) -> None: ...

class LatencySourceStatus(_message.Message):
    __slots__ = ("source", "fault", "malformed", "failed", "lost", "accepted", "ignored_names", "ignored_types", "ignored_tags", "refused", "first_malformed", "names", "step_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    IGNORED_NAMES_FIELD_NUMBER: _ClassVar[int]
    IGNORED_TYPES_FIELD_NUMBER: _ClassVar[int]
    IGNORED_TAGS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FIRST_MALFORMED_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    fault: str
    malformed: int
    failed: int
    lost: int
    accepted: int
    ignored_names: int
    ignored_types: int
    ignored_tags: int
    refused: int
    first_malformed: str
    names: _containers.RepeatedScalarFieldContainer[str]
    step_ms: float
    def __init__(self, source: _Optional[str] = ..., fault: _Optional[str] = ..., malformed: _Optional[int] = ..., failed: _Optional[int] = ..., lost: _Optional[int] = ..., accepted: _Optional[int] = ..., ignored_names: _Optional[int] = ..., ignored_types: _Optional[int] = ..., ignored_tags: _Optional[int] = ..., refused: _Optional[int] = ..., first_malformed: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., step_ms: _Optional[float] = ...) -> None: ...

class WorkSourceStatus(_message.Message):
    __slots__ = ("source", "unit", "fault")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    source: WorkSource
    unit: str
    fault: str
    def __init__(self, source: _Optional[_Union[WorkSource, str]] = ..., unit: _Optional[str] = ..., fault: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("every",)
    EVERY_FIELD_NUMBER: _ClassVar[int]
    every: int
    def __init__(self, every: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("record", "skipped")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    record: TickRecord
    skipped: int
    def __init__(self, record: _Optional[_Union[TickRecord, _Mapping]] = ..., skipped: _Optional[int] = ...) -> None: ...

class Advice(_message.Message):
    __slots__ = ("sequence", "wall_time_s", "advised", "fault", "decided", "p95_ms", "slo_ms", "stall_share", "left_out")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_S_FIELD_NUMBER: _ClassVar[int]
    ADVISED_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    SLO_MS_FIELD_NUMBER: _ClassVar[int]
    STALL_SHARE_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    wall_time_s: float
    advised: Decision
    fault: Fault
    decided: Decision
    p95_ms: float
    slo_ms: float
    stall_share: float
    left_out: int
    def __init__(self, sequence: _Optional[int] = ..., wall_time_s: _Optional[float] = ..., advised: _Optional[_Union[Decision, _Mapping]] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ..., decided: _Optional[_Union[Decision, _Mapping]] = ..., p95_ms: _Optional[float] = ..., slo_ms: _Optional[float] = ..., stall_share: _Optional[float] = ..., left_out: _Optional[int] = ...) -> None: ...

class AdviseRequest(_message.Message):
    __slots__ = ("last", "follow")
    LAST_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    last: int
    follow: bool
    def __init__(self, last: _Optional[int] = ..., follow: bool = ...) -> None: ...

class AdviseResponse(_message.Message):
    __slots__ = ("advice", "skipped")
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    advice: Advice
    skipped: int
    def __init__(self, advice: _Optional[_Union[Advice, _Mapping]] = ..., skipped: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("desired", "lease_s", "holder")
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    desired: DesiredState
    lease_s: float
    holder: str
    def __init__(self, desired: _Optional[_Union[DesiredState, _Mapping]] = ..., lease_s: _Optional[float] = ..., holder: _Optional[str] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("granted", "lease_remaining_s", "reasons")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    granted: DesiredState
    lease_remaining_s: float
    reasons: Reasons
    def __init__(self, granted: _Optional[_Union[DesiredState, _Mapping]] = ..., lease_remaining_s: _Optional[float] = ..., reasons: _Optional[_Union[Reasons, _Mapping]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("holder",)
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    holder: str
    def __init__(self, holder: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoadRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class LoadResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: PolicyStatus
    def __init__(self, policy: _Optional[_Union[PolicyStatus, _Mapping]] = ...) -> None: ...

class SetModeRequest(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: Mode
    def __init__(self, mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class SetModeResponse(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: Mode
    def __init__(self, mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class StoredPolicy(_message.Message):
    __slots__ = ("name", "sha256", "size_bytes", "stored_s", "loaded", "active")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_S_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    size_bytes: int
    stored_s: float
    loaded: bool
    active: bool
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ..., stored_s: _Optional[float] = ..., loaded: bool = ..., active: bool = ...) -> None: ...

class PushOffsetRequest(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    def __init__(self, sha256: _Optional[str] = ...) -> None: ...

class PushOffsetResponse(_message.Message):
    __slots__ = ("received_bytes",)
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    def __init__(self, received_bytes: _Optional[int] = ...) -> None: ...

class PushPolicyRequest(_message.Message):
    __slots__ = ("sha256", "name", "offset", "chunk")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    name: str
    offset: int
    chunk: bytes
    def __init__(self, sha256: _Optional[str] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class PushPolicyResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: StoredPolicy
    def __init__(self, policy: _Optional[_Union[StoredPolicy, _Mapping]] = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[StoredPolicy]
    def __init__(self, policies: _Optional[_Iterable[_Union[StoredPolicy, _Mapping]]] = ...) -> None: ...

class RemovePolicyRequest(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: str
    def __init__(self, policy: _Optional[str] = ...) -> None: ...

class RemovePolicyResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: StoredPolicy
    def __init__(self, policy: _Optional[_Union[StoredPolicy, _Mapping]] = ...) -> None: ...

class RollBackRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollBackResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: PolicyStatus
    def __init__(self, policy: _Optional[_Union[PolicyStatus, _Mapping]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("policy", "sha256")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    policy: str
    sha256: str
    def __init__(self, policy: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class ExperimentPlan(_message.Message):
    __slots__ = ("baseline", "treatment", "pairs", "block_s", "burn_in_s", "seed", "primary", "stop_when_certain", "margin", "fleet_seed")
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    TREATMENT_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_S_FIELD_NUMBER: _ClassVar[int]
    BURN_IN_S_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    STOP_WHEN_CERTAIN_FIELD_NUMBER: _ClassVar[int]
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    FLEET_SEED_FIELD_NUMBER: _ClassVar[int]
    baseline: Candidate
    treatment: Candidate
    pairs: int
    block_s: float
    burn_in_s: float
    seed: int
    primary: PrimaryMeasure
    stop_when_certain: bool
    margin: float
    fleet_seed: int
    def __init__(self, baseline: _Optional[_Union[Candidate, _Mapping]] = ..., treatment: _Optional[_Union[Candidate, _Mapping]] = ..., pairs: _Optional[int] = ..., block_s: _Optional[float] = ..., burn_in_s: _Optional[float] = ..., seed: _Optional[int] = ..., primary: _Optional[_Union[PrimaryMeasure, str]] = ..., stop_when_certain: bool = ..., margin: _Optional[float] = ..., fleet_seed: _Optional[int] = ...) -> None: ...

class ExperimentBlock(_message.Message):
    __slots__ = ("pair", "arm", "began_s", "loss", "seconds", "attainment", "p95_ms", "worst_ms", "background_cores", "fallback_share", "background_units_per_s", "work_unit", "latencies")
    PAIR_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    BEGAN_S_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ATTAINMENT_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    WORST_MS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_CORES_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_SHARE_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_UNITS_PER_S_FIELD_NUMBER: _ClassVar[int]
    WORK_UNIT_FIELD_NUMBER: _ClassVar[int]
    LATENCIES_FIELD_NUMBER: _ClassVar[int]
    pair: int
    arm: ExperimentArm
    began_s: float
    loss: BlockLoss
    seconds: int
    attainment: float
    p95_ms: float
    worst_ms: float
    background_cores: float
    fallback_share: float
    background_units_per_s: float
    work_unit: str
    latencies: LatencyHistogram
    def __init__(self, pair: _Optional[int] = ..., arm: _Optional[_Union[ExperimentArm, str]] = ..., began_s: _Optional[float] = ..., loss: _Optional[_Union[BlockLoss, str]] = ..., seconds: _Optional[int] = ..., attainment: _Optional[float] = ..., p95_ms: _Optional[float] = ..., worst_ms: _Optional[float] = ..., background_cores: _Optional[float] = ..., fallback_share: _Optional[float] = ..., background_units_per_s: _Optional[float] = ..., work_unit: _Optional[str] = ..., latencies: _Optional[_Union[LatencyHistogram, _Mapping]] = ...) -> None: ...

class ExperimentPhase(_message.Message):
    __slots__ = ("block", "blocks", "arm", "measured", "left_s")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    block: int
    blocks: int
    arm: ExperimentArm
    measured: bool
    left_s: float
    def __init__(self, block: _Optional[int] = ..., blocks: _Optional[int] = ..., arm: _Optional[_Union[ExperimentArm, str]] = ..., measured: bool = ..., left_s: _Optional[float] = ...) -> None: ...

class Experiment(_message.Message):
    __slots__ = ("plan", "progress", "began_s", "ended_s", "blocks", "phase")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_S_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    plan: ExperimentPlan
    progress: ExperimentProgress
    began_s: float
    ended_s: float
    blocks: _containers.RepeatedCompositeFieldContainer[ExperimentBlock]
    phase: ExperimentPhase
    def __init__(self, plan: _Optional[_Union[ExperimentPlan, _Mapping]] = ..., progress: _Optional[_Union[ExperimentProgress, str]] = ..., began_s: _Optional[float] = ..., ended_s: _Optional[float] = ..., blocks: _Optional[_Iterable[_Union[ExperimentBlock, _Mapping]]] = ..., phase: _Optional[_Union[ExperimentPhase, _Mapping]] = ...) -> None: ...

class StartExperimentRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: ExperimentPlan
    def __init__(self, plan: _Optional[_Union[ExperimentPlan, _Mapping]] = ...) -> None: ...

class StartExperimentResponse(_message.Message):
    __slots__ = ("experiment",)
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ...) -> None: ...

class GetExperimentRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetExperimentResponse(_message.Message):
    __slots__ = ("experiment",)
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ...) -> None: ...

class StopExperimentRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopExperimentResponse(_message.Message):
    __slots__ = ("experiment",)
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ...) -> None: ...

class ReportedRequest(_message.Message):
    __slots__ = ("latency_ms", "failed", "ended_ago_ms")
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ENDED_AGO_MS_FIELD_NUMBER: _ClassVar[int]
    latency_ms: float
    failed: bool
    ended_ago_ms: float
    def __init__(self, latency_ms: _Optional[float] = ..., failed: bool = ..., ended_ago_ms: _Optional[float] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("requests", "application")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[ReportedRequest]
    application: str
    def __init__(self, requests: _Optional[_Iterable[_Union[ReportedRequest, _Mapping]]] = ..., application: _Optional[str] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("accepted", "failed", "malformed", "late")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    failed: int
    malformed: int
    late: int
    def __init__(self, accepted: _Optional[int] = ..., failed: _Optional[int] = ..., malformed: _Optional[int] = ..., late: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "apply", "release", "load", "set_mode")
    ID_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SET_MODE_FIELD_NUMBER: _ClassVar[int]
    id: int
    apply: ApplyRequest
    release: ReleaseRequest
    load: LoadRequest
    set_mode: SetModeRequest
    def __init__(self, id: _Optional[int] = ..., apply: _Optional[_Union[ApplyRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ..., load: _Optional[_Union[LoadRequest, _Mapping]] = ..., set_mode: _Optional[_Union[SetModeRequest, _Mapping]] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("id", "code", "message", "apply", "release", "load", "set_mode")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SET_MODE_FIELD_NUMBER: _ClassVar[int]
    id: int
    code: str
    message: str
    apply: ApplyResponse
    release: ReleaseResponse
    load: LoadResponse
    set_mode: SetModeResponse
    def __init__(self, id: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., apply: _Optional[_Union[ApplyResponse, _Mapping]] = ..., release: _Optional[_Union[ReleaseResponse, _Mapping]] = ..., load: _Optional[_Union[LoadResponse, _Mapping]] = ..., set_mode: _Optional[_Union[SetModeResponse, _Mapping]] = ...) -> None: ...

class LoopMessage(_message.Message):
    __slots__ = ("tick", "result", "status")
    TICK_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    tick: TickRecord
    result: CommandResult
    status: StatusResponse
    def __init__(self, tick: _Optional[_Union[TickRecord, _Mapping]] = ..., result: _Optional[_Union[CommandResult, _Mapping]] = ..., status: _Optional[_Union[StatusResponse, _Mapping]] = ...) -> None: ...
