/* gpumem C ABI 0 */
#ifndef GPUMEM_H
#define GPUMEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Borrows GPU memory from the broker, in plain C. Each function documents its own promises; this comment
 * has what all functions have in common. C++ programs use gpumem/session.h and gpumem/allocator.h, which are
 * headers over these functions.
 *
 * Errors: A function returns GPUMEM_OK or the reason for its failure; gpumem_last_error() has the message.
 * These codes can come from any function: GPUMEM_INVALID_ARGUMENT (NULL where NULL is not allowed),
 * GPUMEM_FAILED_PRECONDITION (the handle has been closed, or this is a forked child),
 * GPUMEM_RESOURCE_EXHAUSTED (no host memory) and GPUMEM_INTERNAL (a bug). After a failure nothing has
 * changed and no result is stored, unless the function says otherwise. Only functions whose description says
 * so, all of PyTorch's, throw exceptions.
 *
 * Handles: A handle belongs to the caller until it is closed. Using a closed handle is an error and not a
 * crash, because its remainder stays allocated until the process ends or a _free function is called. Using a
 * freed handle is undefined behaviour.
 *
 * Threads: Any thread may call any function, also on one handle, also while another thread closes it. Each
 * call then either works or returns GPUMEM_FAILED_PRECONDITION.
 *
 * Fork: A child may not use its parent's handles. Every call, closing included, returns
 * GPUMEM_FAILED_PRECONDITION and does not touch the parent's memory. A child may open its own session.
 * Slices and allocators in it need the driver, which works in no child of a process that has started it; such
 * a child must call exec first.
 *
 * Versions: A struct begins with its size, which its _INIT macro sets. Zero in any other member means the
 * default. A newer library accepts older structs. An older library accepts newer structs whose new members
 * are zero.
 *
 * Strings: Strings are UTF-8 and end with a zero byte. Returned strings belong to the library.
 */

#ifdef __cplusplus
#define GPUMEM_NOEXCEPT noexcept
extern "C" {
#else
#define GPUMEM_NOEXCEPT
#endif

/* Grows when functions or members are added; a change that breaks programs changes the symbols' version. */
#define GPUMEM_ABI 0

/* gRPC's codes, with gRPC's numbers. No other codes are returned. */
typedef enum gpumem_status {
  GPUMEM_OK = 0,
  GPUMEM_CANCELLED = 1,         /* called off, or ended by a signal: SIGINT, SIGTERM, SIGHUP, SIGQUIT */
  GPUMEM_INVALID_ARGUMENT = 3,  /* the caller's own input is wrong; repeating it will fail again */
  GPUMEM_DEADLINE_EXCEEDED = 4, /* waited as long as was allowed */
  GPUMEM_NOT_FOUND = 5,
  GPUMEM_ALREADY_EXISTS = 6,
  GPUMEM_PERMISSION_DENIED = 7,
  GPUMEM_RESOURCE_EXHAUSTED = 8,  /* a limit would be exceeded, or there is no memory */
  GPUMEM_FAILED_PRECONDITION = 9, /* not in this state: closed, forked, unsupported driver */
  GPUMEM_ABORTED = 10,            /* another change came first: check the state and retry */
  GPUMEM_INTERNAL = 13,           /* a bug */
  GPUMEM_UNAVAILABLE = 14,        /* the broker is not there; trying later may succeed */
  GPUMEM_UNAUTHENTICATED = 16     /* the broker has ended the session */
} gpumem_status;

typedef struct gpumem_session gpumem_session;
typedef struct gpumem_slice gpumem_slice;
typedef struct gpumem_import gpumem_import;
typedef struct gpumem_allocator gpumem_allocator;
typedef struct gpumem_canceller gpumem_canceller;

/* An address of device memory: a CUdeviceptr in value; or of GPUMEM_HOST. Never zero for memory. */
typedef uint64_t gpumem_address;
/* A CUstream or cudaStream_t in value. NULL and 1: the legacy default stream; 2: the calling thread's own. */
typedef void* gpumem_stream;

/* For gpumem_deallocate: the caller does not know the size. For gpumem_allocator_trim: everything. */
#define GPUMEM_UNKNOWN_SIZE UINT64_MAX
/* For gpumem_allocator_options.idle_ms: memory that is not needed is returned at once. For the wait of a
   growth or an allocation: it does not wait. */
#define GPUMEM_AT_ONCE (-1)

/* The version of the loaded library, such as `0.1.0`. */
const char* gpumem_version(void) GPUMEM_NOEXCEPT;
/* The name of `status` as gRPC spells it, such as `RESOURCE_EXHAUSTED`. `UNKNOWN` for other numbers. */
const char* gpumem_status_name(int status) GPUMEM_NOEXCEPT;
/* The complete message of the calling thread's last failure, with what to do and the broker's explanation. ""
   if there was none. Valid until the thread's next failure. */
const char* gpumem_last_error(void) GPUMEM_NOEXCEPT;

/* Why the broker refused: the `reason` of a denial. Other numbers come from a newer broker. */
enum gpumem_denial_reason {
  GPUMEM_DENIED_UNKNOWN = 0,
  GPUMEM_DENIED_SLICE_LIMIT = 1,  /* the slice would pass its own limit */
  GPUMEM_DENIED_TENANT_LIMIT = 2, /* the tenant, or one that it belongs to, would pass its limit */
  GPUMEM_DENIED_POOL_SIZE = 3,    /* more than the device's pool, less what is promised to others */
  GPUMEM_DENIED_NO_MEMORY = 4,    /* others hold the memory, or it is kept for guarantees */
  GPUMEM_DENIED_DEBT = 5,         /* the tenant, or one that it belongs to, uses more than its limit */
  GPUMEM_DENIED_TURN = 6          /* there is memory, but other requests are ahead in the queue */
};

/* The broker's explanation of a refusal in numbers, at the time of its answer. Bytes, unless it says
   otherwise. Strings are valid until the thread's next failure. */
typedef struct gpumem_denial {
  size_t struct_size;
  int reason; /* a gpumem_denial_reason */
  const char* device;
  const char* tenant;
  uint64_t asked;
  uint64_t asked_least; /* what would have been enough */
  uint64_t tenant_limit;
  uint64_t tenant_guarantee;
  uint64_t tenant_charged;
  uint64_t pool;
  uint64_t free;            /* in the pool and charged to nobody */
  uint64_t kept_for_others; /* of `free`: what other tenants' guarantees need */
  uint64_t charged_to_others;
  uint64_t waiters_ahead; /* requests */
  int64_t waited_ms;
  int64_t wait_limit_ms;
  const char* limiting_tenant; /* whose limit applies, for TENANT_LIMIT and DEBT */
  uint64_t limiting_limit;
  uint64_t limiting_charged;
  uint64_t returning;      /* will be free soon */
  uint64_t asked_back;     /* from borrowers, for requests such as this one */
  int64_t soonest_ms;      /* until the request could succeed; -1: that depends on others */
  const char* soonest_why; /* in words */
} gpumem_denial;
#define GPUMEM_DENIAL_INIT \
  { sizeof(gpumem_denial), 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, NULL }

/* Fills `denial`, whose struct_size is set, with the broker's explanation of the calling thread's last
   failure. False: that failure has none. Changes neither the message nor the explanation. */
bool gpumem_last_denial(gpumem_denial* denial) GPUMEM_NOEXCEPT;

/* A holder of memory that a denial is about. */
typedef struct gpumem_holder {
  size_t struct_size;
  bool is_other_tenant; /* told to administrators only; false: of the caller's own tenant */
  uint64_t session;     /* 0: a whole tenant */
  int64_t pid;
  const char* command; /* until the visitor returns, as `tenant` */
  uint64_t charged;
  const char* tenant;
} gpumem_holder;
/* Called for each; false: no more of them. May call any function. */
typedef bool (*gpumem_holder_visitor)(const gpumem_holder* holder, void* context);
/* Calls `visitor`, in the calling thread, for every holder of that denial: those of the own tenant first,
   each part with the largest first. Without a denial it does nothing. */
void gpumem_last_denial_holders(gpumem_holder_visitor visitor, void* context) GPUMEM_NOEXCEPT;

/* ---- Sessions: this process's connection to the broker, which knows from the kernel who it is. ----------
 */

typedef struct gpumem_session_options {
  size_t struct_size;
  const char* runtime_folder; /* of the broker's sockets; NULL: GPUMEM_RUNTIME_DIR, else /run/gpumemd */
  const char* label;          /* for people, shown by `gpumem ps`; NULL: GPUMEM_NAME, else none */
  int64_t timeout_ms; /* of connecting and of each call, after its wait for memory, for all that it asks
                         the broker; 0: 1 s */
  bool no_job;        /* it neither joins the job of GPUMEM_JOB nor takes GPUMEM_LIMIT for its slices */
} gpumem_session_options;
#define GPUMEM_SESSION_OPTIONS_INIT \
  { sizeof(gpumem_session_options), NULL, NULL, 0, false }

/* Stores a new session. `options`: NULL for the defaults. It joins the job of the environment's GPUMEM_JOB.
   If that has ended, or is another user's, the session is in no job, and a line on standard error says so,
   once for the process. GPUMEM_LIMIT bounds each slice of a session that is in no job.
   Errors  GPUMEM_UNAVAILABLE (no broker there, or it does not answer; the words say what to do),
           GPUMEM_PERMISSION_DENIED (the socket's group, or refused by the broker),
           GPUMEM_FAILED_PRECONDITION (a broker of another version), GPUMEM_INVALID_ARGUMENT (a label over 128
           bytes, a negative timeout). */
gpumem_status gpumem_session_connect(const gpumem_session_options* options,
                                     gpumem_session** session) GPUMEM_NOEXCEPT;

/* Closes this handle and removes its pressure handler. When this returns, the handler has returned, unless
   the handler itself calls this. Calls in progress end first. Slices and allocators of the session stay open
   until they are closed, and the session ends with the last of them. */
gpumem_status gpumem_session_close(gpumem_session* session) GPUMEM_NOEXCEPT;

/* Closes the handle if it is open, and frees its remainder; NULL: nothing. No other thread uses the handle,
   and nobody uses it afterwards. It does nothing in a forked child, and to the process's own session. */
void gpumem_session_free(gpumem_session* session) GPUMEM_NOEXCEPT;

/* One empty call to the broker.
   Errors  GPUMEM_UNAVAILABLE (it is gone, or does not answer), GPUMEM_UNAUTHENTICATED (it has ended the
           session). */
gpumem_status gpumem_session_ping(gpumem_session* session) GPUMEM_NOEXCEPT;

/* The figures of a device for this session's job if it is in one, else for its tenant, in bytes. */
typedef struct gpumem_usage {
  size_t struct_size;
  const char* device; /* UUID; until the visitor returns */
  uint64_t pool;
  uint64_t free; /* charged to nobody */
  uint64_t guarantee;
  uint64_t limit;
  uint64_t charged;   /* to the tenant or job, all its sessions together */
  uint64_t available; /* for the tenant or job without waiting, if nobody else waits */
  uint64_t pressure;  /* what the broker asks this session to give back */
  int64_t
      pressure_deadline_ms; /* how long it has for that, from now; 0 without pressure or when it is over */
  int64_t pressure_deadline_ns; /* the same as a time of CLOCK_MONOTONIC; 0 without pressure */
} gpumem_usage;
/* Called for each; false: no more of them. May call any function. */
typedef bool (*gpumem_usage_visitor)(const gpumem_usage* usage, void* context);

/* Calls `visitor` for every device the broker lends, in the calling thread. Reads shared memory: no call to
   the broker. Errors  GPUMEM_UNAVAILABLE (the broker is gone), GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_session_usage(gpumem_session* session, gpumem_usage_visitor visitor,
                                   void* context) GPUMEM_NOEXCEPT;

/* Declares how much memory of `device` (a UUID) this process holds past the broker, in total. It is charged
   to the tenant and replaces the previous declaration. It may put the tenant in debt, which the broker then
   asks back. Errors  GPUMEM_NOT_FOUND (no such device), GPUMEM_INVALID_ARGUMENT (more than the device has),
           GPUMEM_RESOURCE_EXHAUSTED (no thread), GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_session_charge(gpumem_session* session, const char* device,
                                    uint64_t bytes) GPUMEM_NOEXCEPT;

/* A request by the broker that this session give memory back: others have a better claim to it, or its tenant
   is in debt. */
typedef struct gpumem_pressure {
  size_t struct_size;
  const char* device; /* UUID; until the handler returns */
  uint64_t bytes;
  int64_t deadline_ms; /* from now; what has not come back by then may be taken by force */
  int64_t deadline_ns; /* the same as a time of CLOCK_MONOTONIC */
} gpumem_pressure;
/* Gives memory of the device back: gpumem_slice_release, gpumem_slice_shrink, freeing blocks of an allocator.
   Answers how much it expects to have given, for its own records.
   Threads  one of the library's own, with all signals blocked; one call at a time, with no lock held: it may
            call any function. */
typedef uint64_t (*gpumem_pressure_handler)(const gpumem_pressure* pressure, void* context);

/* Has `handler` called when the broker asks for memory that is not had without it, in place of the one
   before; NULL: none. The handler before has returned when this does, unless it is what calls this: so
   `context` lives until then, and nobody removes a handler while holding a lock that it takes. Errors
   GPUMEM_RESOURCE_EXHAUSTED (no thread). */
gpumem_status gpumem_session_on_pressure(gpumem_session* session, gpumem_pressure_handler handler,
                                         void* context) GPUMEM_NOEXCEPT;

/* Ends a context that was given away. */
typedef void (*gpumem_release)(void* context);
/* As gpumem_session_on_pressure, and the library owns `context`: it calls `release` with it once, when the
   handler has been replaced or removed and has returned, or when this fails. Any thread may call it. */
gpumem_status gpumem_session_on_pressure_owned(gpumem_session* session, gpumem_pressure_handler handler,
                                               void* context, gpumem_release release) GPUMEM_NOEXCEPT;

/* The broker's number of the session, and the tenant that is charged. Good after closing, too; zero and NULL,
   with words in gpumem_last_error, for NULL. The name stays for as long as the process. */
uint64_t gpumem_session_id(const gpumem_session* session) GPUMEM_NOEXCEPT;
const char* gpumem_session_tenant(const gpumem_session* session) GPUMEM_NOEXCEPT;
/* Where slices find the driver: the environment's GPUMEM_DRIVER_DIR, else the broker's folder. "": the
   system's search path. As gpumem_session_tenant otherwise. */
const char* gpumem_session_driver_folder(const gpumem_session* session) GPUMEM_NOEXCEPT;

/* The job that the session has joined; 0: none. As gpumem_session_id otherwise. */
uint64_t gpumem_session_job(const gpumem_session* session) GPUMEM_NOEXCEPT;

/* ---- Slices: a range of device addresses, backed as it grows. -------------------------------------------
 */

typedef struct gpumem_slice_options {
  size_t struct_size;
  const char* device;    /* UUID or gpu0; NULL: the first that the broker and this process see; GPUMEM_HOST */
  uint64_t limit;        /* bytes; 0: none but the tenant's, as it is at any time */
  const char* label;     /* for people, shown by `gpumem ps`; NULL: none */
  bool trim_on_pressure; /* what lies beyond gpumem_slice_set_in_use goes back without asking */
  bool pinned;           /* of GPUMEM_HOST: the memory is pinned for all devices of this process */
} gpumem_slice_options;
#define GPUMEM_SLICE_OPTIONS_INIT \
  { sizeof(gpumem_slice_options), NULL, 0, NULL, false, false }

typedef struct gpumem_grow_options {
  size_t struct_size;
  int64_t wait_ms; /* for memory that others hold now; 0: GPUMEM_WAIT, else not at all; GPUMEM_AT_ONCE */
  uint64_t least;  /* the committed size that is enough where the target cannot be had; 0: the target */
  gpumem_canceller* canceller; /* calls the growth off; NULL: none */
} gpumem_grow_options;
#define GPUMEM_GROW_OPTIONS_INIT \
  { sizeof(gpumem_grow_options), 0, 0, NULL }

/* Stores a new canceller, for as many growths as use it. Errors  GPUMEM_RESOURCE_EXHAUSTED. */
gpumem_status gpumem_canceller_create(gpumem_canceller** canceller) GPUMEM_NOEXCEPT;
/* Calls off the growths that use it, now or later: they return GPUMEM_CANCELLED and nothing has changed. */
gpumem_status gpumem_canceller_cancel(gpumem_canceller* canceller) GPUMEM_NOEXCEPT;
/* Frees it; NULL: nothing. No growth uses it, and nobody uses it afterwards. */
void gpumem_canceller_free(gpumem_canceller* canceller) GPUMEM_NOEXCEPT;

/* Stores a new slice. Opens the driver at a process's first call. `options`: NULL for the defaults.
   Errors  GPUMEM_NOT_FOUND (no driver, no such device), GPUMEM_INVALID_ARGUMENT (label, limit),
           GPUMEM_RESOURCE_EXHAUSTED (no addresses, too many slices), GPUMEM_FAILED_PRECONDITION (a driver
           that is too old or was started before a fork), GPUMEM_UNAVAILABLE (the broker is gone),
           GPUMEM_UNAUTHENTICATED (it has ended the session). */
gpumem_status gpumem_slice_open(gpumem_session* session, const gpumem_slice_options* options,
                                gpumem_slice** slice) GPUMEM_NOEXCEPT;

/* Grows until `target` bytes are committed, rounded up to the granularity, and stores the committed size
   unless `committed` is NULL. [base, base + committed) is device memory then, and what is new reads as zero.
   Errors  GPUMEM_RESOURCE_EXHAUSTED (a limit, or no memory and no time to wait), GPUMEM_DEADLINE_EXCEEDED
           (waited in vain), GPUMEM_CANCELLED (the slice was closed meanwhile, the canceller was used, or a
           handler of the program took a signal to end), GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED,
           GPUMEM_INVALID_ARGUMENT (`target` near 2^64 or under `least`, a negative wait).
   Blocks  up to `wait_ms`. */
gpumem_status gpumem_slice_grow(gpumem_slice* slice, uint64_t target, const gpumem_grow_options* options,
                                uint64_t* committed) GPUMEM_NOEXCEPT;

/* One slice's part of a growth of several. */
typedef struct gpumem_grow_step {
  size_t struct_size; /* the same in all steps */
  gpumem_slice* slice;
  uint64_t target;
  uint64_t least;     /* as in gpumem_grow_options */
  uint64_t committed; /* stored by a success */
} gpumem_grow_step;
#define GPUMEM_GROW_STEP_INIT \
  { sizeof(gpumem_grow_step), NULL, 0, 0, 0 }

/* Grows `count` slices of the session, each on another device, in one request: all steps or nothing.
   `options->least` is zero, because each step has its own.
   Errors  as gpumem_slice_grow; GPUMEM_INVALID_ARGUMENT, too: a slice of another session, two of one device.
 */
gpumem_status gpumem_session_grow_all(gpumem_session* session, gpumem_grow_step* steps, size_t count,
                                      const gpumem_grow_options* options) GPUMEM_NOEXCEPT;

/* Gives memory back, from the end on and in whole extents, as long as at least `target` stays committed, and
   stores the committed size unless `committed` is NULL. The caller has synchronised its work there.
   Errors  GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED: the memory is unmapped all the same, and the next call
   tells the broker again; GPUMEM_INTERNAL (the driver does not unmap it). */
gpumem_status gpumem_slice_shrink(gpumem_slice* slice, uint64_t target, uint64_t* committed) GPUMEM_NOEXCEPT;

/* Gives at least `bytes` back, from the end on and in whole extents, as far as at least `keep` stays
   committed, and stores how much unless `released` is NULL. The caller has synchronised its work there.
   Errors  as gpumem_slice_shrink. */
gpumem_status gpumem_slice_release(gpumem_slice* slice, uint64_t bytes, uint64_t keep,
                                   uint64_t* released) GPUMEM_NOEXCEPT;

/* Says how much of the slice, from its base on, holds something, and stores whether all of that is committed
   unless `is_committed` is NULL. A figure for people, unless the slice has `trim_on_pressure`: then what lies
   beyond may vanish at any moment, and what lies below stays. So a program raises it before it uses more, and
   grows if not all of it is committed; and lowers it when the device is done with what lies beyond. */
gpumem_status gpumem_slice_set_in_use(gpumem_slice* slice, uint64_t bytes,
                                      bool* is_committed) GPUMEM_NOEXCEPT;

/* Constants of a slice, good after closing, too: the first address, its limit (as gpumem_allocator_limit, the
   size of its addresses) and the granularity in bytes, the UUID and this process's ordinal of its device.
   Zero, NULL and -1, with words in gpumem_last_error, for NULL. The UUID stays for as long as the process. */
gpumem_address gpumem_slice_base(const gpumem_slice* slice) GPUMEM_NOEXCEPT;
uint64_t gpumem_slice_limit(const gpumem_slice* slice) GPUMEM_NOEXCEPT;
uint64_t gpumem_slice_granularity(const gpumem_slice* slice) GPUMEM_NOEXCEPT;
const char* gpumem_slice_device(const gpumem_slice* slice) GPUMEM_NOEXCEPT;
int gpumem_slice_ordinal(const gpumem_slice* slice) GPUMEM_NOEXCEPT;
/* Bytes now; zero, with words in gpumem_last_error, for NULL, a closed slice or in a forked child. */
uint64_t gpumem_slice_committed(gpumem_slice* slice) GPUMEM_NOEXCEPT;

/* Gives the slice's memory and addresses back; a growth that waits is called off. Calls under way end first,
   and the memory goes with the last of them. The caller has synchronised its work on the slice. */
gpumem_status gpumem_slice_close(gpumem_slice* slice) GPUMEM_NOEXCEPT;
/* As gpumem_session_free. */
void gpumem_slice_free(gpumem_slice* slice) GPUMEM_NOEXCEPT;

/* ---- Jobs: the memory of a command, for all its processes together. --------------------------------------
 */

typedef struct gpumem_job_options {
  size_t struct_size;
  const char* label;          /* for people; NULL: none */
  uint64_t limit;             /* bytes on each device; 0: none but the tenant's */
  uint64_t limit_points;      /* instead: hundredths of a percent of what the tenant can have; 0: none */
  uint64_t host_limit;        /* bytes of the host store, lent or pinned; 0: none but the tenant's */
  uint64_t host_limit_points; /* instead, as limit_points */
} gpumem_job_options;
#define GPUMEM_JOB_OPTIONS_INIT \
  { sizeof(gpumem_job_options), NULL, 0, 0, 0, 0 }

/* Makes a job, which the session owns and is not in, and stores its number. Sessions of the same user and
   tenant join it if GPUMEM_JOB is that number in their environment. It lives as long as this session and
   those that have joined. `options`: NULL for the defaults.
   Errors  GPUMEM_FAILED_PRECONDITION (the session owns a job, or is in one), GPUMEM_INVALID_ARGUMENT (a label
           over 128 bytes, two limits), GPUMEM_RESOURCE_EXHAUSTED (no thread), GPUMEM_UNAVAILABLE,
           GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_session_begin_job(gpumem_session* session, const gpumem_job_options* options,
                                       uint64_t* job) GPUMEM_NOEXCEPT;

/* Reserves `bytes` of `device` (a UUID) for the job that the session owns; less, if the job can never have as
   much. They are charged to the tenant, and growths of the job's sessions come from them first. The
   reservation ends with this session. Others get the unused part of it: for guarantees at once, else once the
   job has not used it for two minutes. `options->least` is zero.
   Errors  as gpumem_slice_grow; GPUMEM_NOT_FOUND (the session owns no job; no such device).
   Blocks  up to `options->wait_ms`. */
gpumem_status gpumem_session_reserve_for_job(gpumem_session* session, const char* device, uint64_t bytes,
                                             const gpumem_grow_options* options) GPUMEM_NOEXCEPT;

/* The use of memory by all sessions of a job since it began. */
typedef struct gpumem_job_account {
  size_t struct_size;
  uint64_t peak;     /* bytes that they had at one time, the most of any GPU; else of the host */
  int64_t waited_ms; /* for memory, all requests together */
  uint64_t denied;   /* requests */
} gpumem_job_account;
#define GPUMEM_JOB_ACCOUNT_INIT \
  { sizeof(gpumem_job_account), 0, 0, 0 }

/* Fills `account`, whose struct_size is set, for the job that the session owns.
   Errors  GPUMEM_NOT_FOUND (it owns none), GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_session_job_account(gpumem_session* session,
                                         gpumem_job_account* account) GPUMEM_NOEXCEPT;

/* ---- Handles: memory that several processes of a tenant use. ---------------------------------------------
 */

/* An IPC handle: it names memory of a slice or an allocator, and is sent to another process by any means.
   Nobody guesses one, and only sessions of the same tenant can redeem it. */
typedef struct gpumem_ipc_handle {
  unsigned char bytes[64];
} gpumem_ipc_handle;

typedef struct gpumem_export_options {
  size_t struct_size;
  int64_t life_ms; /* how long it can be redeemed, 24 hours at most; 0: a minute */
  uint64_t uses;   /* how often; 0: once */
} gpumem_export_options;
#define GPUMEM_EXPORT_OPTIONS_INIT \
  { sizeof(gpumem_export_options), 0, 0 }

/* Stores a handle of [base + offset, base + offset + bytes) of the slice. `bytes`: 0 for all that is
   committed behind `offset`. It ends when it is used up or expires, and with any of the memory. The device's
   work on the memory is not waited for: the importer orders its own behind it (by an IPC event, or a
   synchronisation before the handle is sent). Errors  GPUMEM_INVALID_ARGUMENT (not committed, a negative or
   too long life), GPUMEM_RESOURCE_EXHAUSTED (over 128 extents, over 1,024 handles), GPUMEM_NOT_FOUND (given
   back meanwhile), GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_slice_export(gpumem_slice* slice, uint64_t offset, uint64_t bytes,
                                  const gpumem_export_options* options,
                                  gpumem_ipc_handle* handle) GPUMEM_NOEXCEPT;

/* Maps the memory that `handle` names, readable and writable, and stores the import. A region is mapped for
   reading; gpumem_import_region tells its version. It stays mapped when its
   slice gives it back or its process ends; it is then charged to this session. When the broker asks for the
   memory, it asks this session, too: a pressure handler closes the import.
   Errors  GPUMEM_NOT_FOUND (expired, used up, given back, or another tenant's; a device that this process
   does not see), GPUMEM_INVALID_ARGUMENT (no handle of gpumem's), GPUMEM_UNAVAILABLE (the memory is being
           asked back, or the broker is gone), GPUMEM_RESOURCE_EXHAUSTED (over 1,024 imports, no descriptors,
           no addresses), GPUMEM_PERMISSION_DENIED (the broker could not end this process),
           GPUMEM_FAILED_PRECONDITION (the driver),
           GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_import_handle(gpumem_session* session, const gpumem_ipc_handle* handle,
                                   gpumem_import** import) GPUMEM_NOEXCEPT;

/* Constants of an import, good after closing, too: the range's first address and its length in bytes, the
   UUID and this process's ordinal of its device. Zero, NULL and -1, with words in gpumem_last_error, for
   NULL. The UUID stays for as long as the process. */
gpumem_address gpumem_import_address(const gpumem_import* import) GPUMEM_NOEXCEPT;
uint64_t gpumem_import_bytes(const gpumem_import* import) GPUMEM_NOEXCEPT;
const char* gpumem_import_device(const gpumem_import* import) GPUMEM_NOEXCEPT;
int gpumem_import_ordinal(const gpumem_import* import) GPUMEM_NOEXCEPT;

/* Unmaps the memory. The caller has synchronised its work on it. */
gpumem_status gpumem_import_close(gpumem_import* import) GPUMEM_NOEXCEPT;
/* As gpumem_session_free. */
void gpumem_import_free(gpumem_import* import) GPUMEM_NOEXCEPT;

/* ---- Regions: named memory that others map, of other tenants too. -------------------------------------- */

/* The tenants that may map a region, besides its publisher. */
typedef enum gpumem_sharing {
  GPUMEM_SHARING_PRIVATE = 0, /* nobody */
  GPUMEM_SHARING_GROUP = 1,   /* all tenants within the publisher's parent tenant */
  GPUMEM_SHARING_PUBLIC = 2,  /* everybody who may connect to the broker */
  GPUMEM_SHARING_NAMED = 3    /* the tenants that are named, and whoever belongs to them */
} gpumem_sharing;

typedef struct gpumem_publish_options {
  size_t struct_size;
  gpumem_sharing sharing;
  const char* const* readers; /* with GPUMEM_SHARING_NAMED: tenants */
  size_t reader_count;        /* 8 at most */
  uint64_t layout;          /* so many of the region's last bytes say what is in it; not read by the broker */
  unsigned char digest[32]; /* of the layout, for readers to compare */
  int64_t life_ms;          /* 0: as long as its memory */
  bool keep;                /* it outlives the processes that have its memory, at its tenant's expense */
  int64_t linger_ms;        /* of a kept one: ends so long after the last process has left it; 0: never */
  bool sealed;              /* nobody writes to it from now on */
} gpumem_publish_options;
#define GPUMEM_PUBLISH_OPTIONS_INIT \
  { sizeof(gpumem_publish_options), GPUMEM_SHARING_PRIVATE, NULL, 0, 0, {0}, 0, false, 0, false }

/* Names [base + offset, base + offset + bytes) of the slice, whose content does not change any more, for
   others to map. `bytes`: 0 for all that is committed behind `offset`. Stores the region's version, which is
   higher than that of every region before; earlier ones of the same name stay. The memory stays charged as it
   is. The region ends when it is removed or expires, and with any of its memory: when the slice gives it back
   or its process ends, and no other process of the tenant has mapped it. A kept one stays then, charged to
   the tenant; it ends when others need what the tenant has beyond its guarantee, too. The device's work on
   the memory is not waited for. A sealed region is mapped for reading alone; the extents that it lies in are
   readable only here, too, with whatever else they hold, until they are given back.
   Errors  GPUMEM_INVALID_ARGUMENT (not committed, a name that is empty, too long or not printable, a layout
   longer than the region, linger_ms without keep, readers without GPUMEM_SHARING_NAMED or the other way
   round), GPUMEM_RESOURCE_EXHAUSTED (over 128 extents, over 16,384 regions of the tenant), GPUMEM_NOT_FOUND
   (given back meanwhile), GPUMEM_FAILED_PRECONDITION (sealed memory as a region that is not, or the other way
   round; to be sealed, memory that others have imported by handles), GPUMEM_UNAVAILABLE,
   GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_slice_publish(gpumem_slice* slice, const char* name, uint64_t offset, uint64_t bytes,
                                   const gpumem_publish_options* options, uint64_t* version) GPUMEM_NOEXCEPT;

typedef struct gpumem_region_options {
  size_t struct_size;
  const char* owner; /* the tenant that has published it; NULL: this session's */
  uint64_t version;  /* 0: the newest */
  /* For processes of its tenant that work together: others see what is written. Else writing is a fault. */
  bool writable;
  bool adopt; /* a kept region that no process has any more lives as long as its memory, with this session */
  int64_t wait_ms;             /* so long at most for the newest to be published; 0: not at all */
  gpumem_canceller* canceller; /* calls the wait off; NULL: nobody does */
  const char* device;          /* UUID, GPUMEM_HOST: of those that are of this device; NULL: of all */
  const char* const* access;   /* UUIDs of other devices that use the memory, too, from peer to peer */
  size_t access_count;
  uint64_t newer_than; /* with version 0: a newer one than this; 0: any */
  bool pinned;         /* of memory of GPUMEM_HOST: as of gpumem_slice_options, as far as the driver allows */
} gpumem_region_options;
#define GPUMEM_REGION_OPTIONS_INIT \
  { sizeof(gpumem_region_options), NULL, 0, false, false, 0, NULL, NULL, NULL, 0, 0, false }

/* Maps the region and stores the import. Otherwise as gpumem_import_handle. Errors  GPUMEM_INVALID_ARGUMENT
   (the name, the owner; version and newer_than), GPUMEM_NOT_FOUND (no such region for this session's tenant,
   none newer; a device that this process does not see), GPUMEM_DEADLINE_EXCEEDED (waited in vain),
   GPUMEM_CANCELLED, GPUMEM_RESOURCE_EXHAUSTED (this session waits for 64), GPUMEM_PERMISSION_DENIED (adopts
   another tenant's, or maps it writable), GPUMEM_FAILED_PRECONDITION (adopts one that is not kept, or that a
   process has; a device in `access` cannot access the region's), others as gpumem_import_handle. */
gpumem_status gpumem_map_region(gpumem_session* session, const char* name,
                                const gpumem_region_options* options, gpumem_import** import) GPUMEM_NOEXCEPT;

typedef struct gpumem_reserve_options {
  size_t struct_size;
  bool writable;               /* as of gpumem_region_options, of what is mapped */
  int64_t wait_ms;             /* so long at most for what another process has reserved; 0: not at all */
  int64_t life_ms;             /* the reservation ends so long after, 7 days at most; 0: 10 minutes */
  gpumem_canceller* canceller; /* calls the wait off; NULL: nobody does */
} gpumem_reserve_options;
#define GPUMEM_RESERVE_OPTIONS_INIT \
  { sizeof(gpumem_reserve_options), false, 0, 0, NULL }

/* Maps the newest region of this session's tenant with this name, or makes this session the one to publish
   it. Stores an import and the reservation 0; or NULL and a reservation, if there is no such region and
   nobody else has reserved the name. Publishing the name by this session fulfils the reservation. It ends
   with gpumem_release_reservation, after its life and with the session, too; then one of those who wait for
   it has the next. A process that publishes the name without one is not refused. Errors
   GPUMEM_INVALID_ARGUMENT (the name), GPUMEM_NOT_FOUND (no wait, and another process has reserved it; a
   device that this process does not see), GPUMEM_DEADLINE_EXCEEDED (waited in vain), GPUMEM_CANCELLED,
   GPUMEM_RESOURCE_EXHAUSTED (this session waits for 64, or has reserved 64),
   others as gpumem_import_handle. */
gpumem_status gpumem_map_or_reserve(gpumem_session* session, const char* name,
                                    const gpumem_reserve_options* options, gpumem_import** import,
                                    uint64_t* reservation) GPUMEM_NOEXCEPT;
/* This session does not publish what it has reserved. Errors  GPUMEM_NOT_FOUND (it has been published, or the
   reservation has ended), GPUMEM_FAILED_PRECONDITION, GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_release_reservation(gpumem_session* session, uint64_t reservation) GPUMEM_NOEXCEPT;

typedef struct gpumem_region_info {
  size_t struct_size;
  uint64_t version;
  uint64_t layout;
  unsigned char digest[32];
} gpumem_region_info;
#define GPUMEM_REGION_INFO_INIT             \
  {                                         \
    sizeof(gpumem_region_info), 0, 0, { 0 } \
  }

/* Stores what its publisher said of a mapped region; zeros for an import of a handle. */
gpumem_status gpumem_import_region(const gpumem_import* import, gpumem_region_info* info) GPUMEM_NOEXCEPT;

typedef struct gpumem_remap_options {
  size_t struct_size;
  bool newest; /* the newest version of the device, of the same layout; else the one that was mapped before */
} gpumem_remap_options;
#define GPUMEM_REMAP_OPTIONS_INIT \
  { sizeof(gpumem_remap_options), false }

/* Unmaps a region and keeps its addresses, until gpumem_import_remap maps it there again, with the access
   that it had. Work on them fails meanwhile, as on memory that is not mapped. To the broker it is as if the
   import were closed: an adopted region ends. The caller has synchronised its work on it. A region that
   cannot be mapped again stays unmapped. Errors  GPUMEM_FAILED_PRECONDITION (it is unmapped already, or
   mapped; an import of no region; the newest has another layout or size than before, or tells no digest of
   its layout), GPUMEM_NOT_FOUND (the region has ended), others as gpumem_map_region. */
gpumem_status gpumem_import_unmap(gpumem_import* import) GPUMEM_NOEXCEPT;
gpumem_status gpumem_import_remap(gpumem_import* import, const gpumem_remap_options* options) GPUMEM_NOEXCEPT;
/* Whether it is mapped. False for NULL and for one that was closed. */
bool gpumem_import_is_mapped(gpumem_import* import) GPUMEM_NOEXCEPT;
/* Whether it is memory of GPUMEM_HOST that is pinned in this process. A driver may refuse to pin what is
   mapped for reading: such a region is mapped without. False for NULL and for one that was closed. */
bool gpumem_import_is_pinned(gpumem_import* import) GPUMEM_NOEXCEPT;

/* Ends a region of this session's tenant: it cannot be mapped any more. Existing mappings stay. `version`: 0
   for the newest. Errors  GPUMEM_INVALID_ARGUMENT (the name), GPUMEM_NOT_FOUND, GPUMEM_FAILED_PRECONDITION,
   GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED. */
gpumem_status gpumem_remove_region(gpumem_session* session, const char* name,
                                   uint64_t version) GPUMEM_NOEXCEPT;

/* ---- Allocators: blocks of any size, in the order of streams. -------------------------------------------
 */

typedef struct gpumem_allocator_options {
  size_t struct_size;
  const char* device; /* UUID or gpu0; NULL: the first that the broker and this process see; GPUMEM_HOST */
  uint64_t limit;     /* bytes; 0: none but the tenant's, as it is at any time */
  const char* label;  /* for people, shown by `gpumem ps`; NULL: none */
  int64_t wait_ms;    /* how long an allocation may wait for memory, as in gpumem_grow_options */
  int64_t idle_ms;    /* what nobody needed for so long goes back to the broker; 0: 2 s; GPUMEM_AT_ONCE */
  bool pageable; /* of GPUMEM_HOST: the memory is not pinned, and the process needs no driver. An error where
                    the driver allocates the store (kind = "driver") */
} gpumem_allocator_options;
#define GPUMEM_ALLOCATOR_OPTIONS_INIT \
  { sizeof(gpumem_allocator_options), NULL, 0, NULL, 0, 0, false }

/* The device of slices, regions and allocators of the host store: memory of the machine, at addresses of this
   process. A slice of it, a region of it and an import are not pinned unless the options say so, need no
   driver then, and their ordinal is -1. A forked child has the memory of its parent's slices, regions and
   imports at the same addresses, and keeps it until it ends. The device of an allocator of the host store.
   Its blocks are memory of the machine, at addresses of this process, and pinned for all its devices and
   contexts. The process must have a context by its first allocation. Frees are not in the order of streams: a
   block is freed when no copy uses it any more. A forked child does not have the memory.
   Where the driver allocates the store (kind = "driver" in its configuration), all of it is pinned, needs the
   driver and no context, and no forked child has it. */
#define GPUMEM_HOST "host"

/* Stores a new allocator. `options`: NULL for the defaults.
   A block that was freed on a stream serves that stream again at once, and another one only after the work
   given to the first so far. Nothing waits for the device as a whole. Blocks lie at multiples of 256 bytes;
   their content is undefined. With drivers before CUDA 12.0, release a stream before you destroy it.
   Errors  as gpumem_slice_open; GPUMEM_INVALID_ARGUMENT (a negative wait), too. */
gpumem_status gpumem_allocator_open(gpumem_session* session, const gpumem_allocator_options* options,
                                    gpumem_allocator** allocator) GPUMEM_NOEXCEPT;

/* Stores the address of `bytes` (not zero) of memory, for work on `stream` and what is ordered behind it.
   Errors  GPUMEM_RESOURCE_EXHAUSTED, GPUMEM_DEADLINE_EXCEEDED: not without memory that others hold, with the
           broker's explanation, after everything that is cached here was tried. GPUMEM_RESOURCE_EXHAUSTED,
           too: more than the limit; over 4,095 streams. GPUMEM_INVALID_ARGUMENT (zero; a tag that gpumem_tag
           has not given), GPUMEM_CANCELLED (a handler of the program took a signal to end while this waited),
           GPUMEM_UNAVAILABLE (the broker is gone), GPUMEM_UNAUTHENTICATED (it has ended the session).
   Blocks  only while more memory is asked for: up to `wait_ms`. */
gpumem_status gpumem_allocate(gpumem_allocator* allocator, uint64_t bytes, gpumem_stream stream,
                              gpumem_address* address) GPUMEM_NOEXCEPT;

typedef struct gpumem_placement {
  size_t struct_size;
  uint8_t tag;   /* of gpumem_tag; 0: none */
  uint64_t room; /* bytes of addresses, not memory, kept behind the block for gpumem_extend; 0: none */
} gpumem_placement;
#define GPUMEM_PLACEMENT_INIT \
  { sizeof(gpumem_placement), 0, 0 }

/* gpumem_allocate with a name for snapshots, or with room to extend. `placement`: NULL for neither. */
gpumem_status gpumem_allocate_placed(gpumem_allocator* allocator, uint64_t bytes, gpumem_stream stream,
                                     const gpumem_placement* placement,
                                     gpumem_address* address) GPUMEM_NOEXCEPT;

/* Frees the block at `address`, in the order of `stream`: work given to it so far may still use the block.
   `bytes`: as it was allocated or last extended; or GPUMEM_UNKNOWN_SIZE.
   Errors  GPUMEM_INVALID_ARGUMENT: no block begins there, it was freed already, or it has another size.
           GPUMEM_RESOURCE_EXHAUSTED (over 4,095 streams) and the driver's, of a stream that is new here.
   Two threads that free one block at the same moment may both be told that they did; it serves once. */
gpumem_status gpumem_deallocate(gpumem_allocator* allocator, gpumem_address address, uint64_t bytes,
                                gpumem_stream stream) GPUMEM_NOEXCEPT;

/* Makes the block at `address` `to` bytes long, in place; what it holds stays. To more: never fails for want
   of addresses as long as `to` is within its room. To less: the end is given up, and with it what room there
   was. Errors  as gpumem_allocate and gpumem_deallocate; GPUMEM_ABORTED: something else lies behind it, and
   there is no room. */
gpumem_status gpumem_extend(gpumem_allocator* allocator, gpumem_address address, uint64_t bytes, uint64_t to,
                            gpumem_stream stream) GPUMEM_NOEXCEPT;

/* Work of `stream`, too, uses the block at `address`. When the block is freed, its memory serves nobody until
   the device has come to the end of the work given to `stream` until then. Any number of streams, each once
   or more often. A stream that is recorded is not destroyed before the block is freed, unless
   gpumem_release_stream was told. The per-thread default stream: the block waits for the legacy default
   stream, which comes after it. A block that is made shorter keeps its memory. Errors
   GPUMEM_INVALID_ARGUMENT: no block begins there. GPUMEM_RESOURCE_EXHAUSTED (over 4,095 streams) and the
   driver's, of a stream that is new here. */
gpumem_status gpumem_record_stream(gpumem_allocator* allocator, gpumem_address address,
                                   gpumem_stream stream) GPUMEM_NOEXCEPT;

/* Forgets `stream`, which is about to be destroyed. Needed before CUDA 12.0, and for recorded streams.
   Errors  the driver's (its work is being captured into a graph): it is not forgotten. */
gpumem_status gpumem_release_stream(gpumem_allocator* allocator, gpumem_stream stream) GPUMEM_NOEXCEPT;

/* Returns when the work given to `stream` so far is done: before a block is used on streams that nothing
   orders behind the one it was allocated on. NULL: all blocking streams of the context. Errors
   GPUMEM_FAILED_PRECONDITION (a graph is being captured), GPUMEM_INTERNAL (the driver). */
gpumem_status gpumem_synchronize(gpumem_allocator* allocator, gpumem_stream stream) GPUMEM_NOEXCEPT;

/* Stores the tag of `name` (at most 63 bytes); the same name has the same tag.
   Errors  GPUMEM_INVALID_ARGUMENT (no name, a longer one), GPUMEM_RESOURCE_EXHAUSTED (more than 255 names).
 */
gpumem_status gpumem_tag(gpumem_allocator* allocator, const char* name, uint8_t* tag) GPUMEM_NOEXCEPT;

/* Stores a handle of [address + offset, address + offset + bytes), in the block at `address`. `bytes`: 0 for
   the rest of the block. As gpumem_slice_export; the whole extents that the range lies in are mapped there,
   with what else lies in them. The block is not freed while others use it: the import keeps the memory, but
   the allocator would use it anew. Errors  as gpumem_slice_export; GPUMEM_INVALID_ARGUMENT (no block begins
   there; beyond it), GPUMEM_FAILED_PRECONDITION (closed). */
gpumem_status gpumem_allocator_export(gpumem_allocator* allocator, gpumem_address address, uint64_t offset,
                                      uint64_t bytes, const gpumem_export_options* options,
                                      gpumem_ipc_handle* handle) GPUMEM_NOEXCEPT;

/* Gives back at least `bytes`, as far as wholly free extents, the threads' caches included, add up to it, and
   stores how much unless `given` is NULL. Waits for work on the device that still uses them.
   Errors  GPUMEM_UNAVAILABLE, GPUMEM_UNAUTHENTICATED, GPUMEM_INTERNAL (the driver does not unmap it). */
gpumem_status gpumem_allocator_trim(gpumem_allocator* allocator, uint64_t bytes,
                                    uint64_t* given) GPUMEM_NOEXCEPT;

typedef struct gpumem_statistics {
  size_t struct_size;
  uint64_t in_use;      /* bytes asked for and not freed */
  uint64_t placed;      /* what the blocks in use take, their rounding included */
  uint64_t cached;      /* free, in the caches of threads */
  uint64_t committed;   /* lent by the broker */
  uint64_t returnable;  /* of `committed`: in wholly free extents */
  uint64_t reserved;    /* addresses */
  uint64_t peak_in_use; /* the most that blocks took, rounding and caches included */
  uint64_t peak_committed;
  double fragmentation;   /* of `committed`, 0 to 1: neither placed, nor cached, nor returnable */
  uint64_t allocations;   /* since the beginning, as all that follow */
  uint64_t cache_hits;    /* of them, served from the calling thread's cache */
  uint64_t growths;       /* requests to the broker that were granted */
  uint64_t refused;       /* and those that were not */
  uint64_t moved_extents; /* mapped under another address, to make room */
  uint64_t given_back;    /* extents */
} gpumem_statistics;
#define GPUMEM_STATISTICS_INIT \
  { sizeof(gpumem_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Fills `statistics`, whose struct_size is set: as many members as it has. */
gpumem_status gpumem_allocator_statistics(gpumem_allocator* allocator,
                                          gpumem_statistics* statistics) GPUMEM_NOEXCEPT;

/* The peaks of gpumem_allocator_statistics are counted anew, from what is there now. */
gpumem_status gpumem_allocator_reset_peaks(gpumem_allocator* allocator) GPUMEM_NOEXCEPT;

typedef struct gpumem_size_class {
  size_t struct_size;
  uint64_t size;        /* of the class's blocks, in bytes: the largest that may be asked for in it */
  uint64_t in_use;      /* blocks */
  uint64_t allocations; /* since the beginning */
  uint64_t cache_hits;  /* of them, served from the calling thread's cache */
} gpumem_size_class;
/* Called for each; false: no more of them. May call any function. */
typedef bool (*gpumem_size_class_visitor)(const gpumem_size_class* size_class, void* context);
/* Calls `visitor`, in the calling thread, for every size class that was ever used, by size; all larger blocks
   are the last, as one. */
gpumem_status gpumem_allocator_size_classes(gpumem_allocator* allocator, gpumem_size_class_visitor visitor,
                                            void* context) GPUMEM_NOEXCEPT;

/* A block in use. */
typedef struct gpumem_block {
  size_t struct_size;
  gpumem_address address;
  uint64_t bytes;       /* as asked for */
  uint64_t placed;      /* as it takes */
  gpumem_stream stream; /* it was allocated on */
  int64_t age_ms;       /* to within a second */
  const char* tag;      /* "": none; until the visitor returns */
} gpumem_block;
/* Called for each; false: no more of them. May call any function. */
typedef bool (*gpumem_block_visitor)(const gpumem_block* block, void* context);
/* Calls `visitor`, in the calling thread, for every block that was in use at one moment, by address. Other
   calls wait while the blocks are looked at, but not for the visitor. */
gpumem_status gpumem_allocator_snapshot(gpumem_allocator* allocator, gpumem_block_visitor visitor,
                                        void* context) GPUMEM_NOEXCEPT;

/* Constants of an allocator, good after closing, too: its limit and the granularity of extents in bytes, the
   UUID and this process's ordinal of its device. The limit is the one that it was opened with; without one of
   its own, what the device can lend, of which its tenant's limit, as it is at any time
   (gpumem_session_usage), allows so much. Zero, NULL and -1, with words in gpumem_last_error, for NULL. The
   UUID stays for as long as the process. */
uint64_t gpumem_allocator_limit(const gpumem_allocator* allocator) GPUMEM_NOEXCEPT;
uint64_t gpumem_allocator_granularity(const gpumem_allocator* allocator) GPUMEM_NOEXCEPT;
const char* gpumem_allocator_device(const gpumem_allocator* allocator) GPUMEM_NOEXCEPT;
int gpumem_allocator_ordinal(const gpumem_allocator* allocator) GPUMEM_NOEXCEPT;

/* Gives everything back, after the work on the blocks that were freed.
   Errors  GPUMEM_FAILED_PRECONDITION: so many blocks are in use; nothing has changed. One of
           gpumem_default_allocator is never closed: the same. Closed, but a graph is being captured: memory
           that work may still use stays mapped until the process ends. */
gpumem_status gpumem_allocator_close(gpumem_allocator* allocator) GPUMEM_NOEXCEPT;

/* Closes with what blocks there are, after the work given so far to the streams that they were freed and
   allocated on. The caller has synchronised other work on them, and nobody uses them any more.
   Errors  GPUMEM_FAILED_PRECONDITION: closed already; one of gpumem_default_allocator; a graph is being
           captured, as with gpumem_allocator_close. */
gpumem_status gpumem_allocator_destroy(gpumem_allocator* allocator) GPUMEM_NOEXCEPT;
/* As gpumem_session_free, closing as gpumem_allocator_destroy does. */
void gpumem_allocator_free(gpumem_allocator* allocator) GPUMEM_NOEXCEPT;

/* ---- What the whole process shares: under frameworks that take two functions and no state. --------------
 */

/* Says what the process's own session and allocators are opened with; NULL: the defaults. `device` is none of
   the caller's here. Children that are forked later open theirs with the same, or with what they say before.
   Errors  GPUMEM_FAILED_PRECONDITION: the session is open already;
   GPUMEM_INVALID_ARGUMENT: as gpumem_session_connect and gpumem_allocator_open, and a device. */
gpumem_status gpumem_configure_default(const gpumem_session_options* session,
                                       const gpumem_allocator_options* allocator) GPUMEM_NOEXCEPT;

/* Stores the process's own session, connected at the first call. A failure is tried again by the next call.
   It is never closed: gpumem_session_close answers GPUMEM_FAILED_PRECONDITION. A forked child has its own,
   but no memory by it if its parent had started the driver before: that is CUDA's rule.
   If its broker is gone, another session at the broker that is there now, which is stored from then on.
   Errors  as gpumem_session_connect. */
gpumem_status gpumem_default_session(gpumem_session** session) GPUMEM_NOEXCEPT;

/* Stores the process's own allocator for the device that is `device` among those this process sees, opened at
   the first call. Its memory goes back by gpumem_allocator_trim, when it idles, and with the process. When
   its broker is gone, it allocates from the broker that is there then; its blocks stay usable meanwhile.
   Errors  as gpumem_default_session and gpumem_allocator_open; GPUMEM_NOT_FOUND, too: this process has no
   such device, or the broker does not lend it. */
gpumem_status gpumem_default_allocator(int device, gpumem_allocator** allocator) GPUMEM_NOEXCEPT;

/* PyTorch: torch.cuda.memory.CUDAPluggableAllocator(library, "gpumem_torch_alloc", "gpumem_torch_free"), on
   gpumem_default_allocator(device). Zero bytes: NULL, without an error.
   Throws  with the words of gpumem_last_error: c10::OutOfMemoryError of the process's libc10.so if there is
   no memory, else std::runtime_error of its libstdc++.so.6. In Python these are torch.OutOfMemoryError and
           RuntimeError. So only C++ code calls it. A PyTorch that does not export that class:
           std::runtime_error. Without libstdc++.so.6 it says the words on standard error and returns NULL. */
void* gpumem_torch_alloc(size_t size, int device, gpumem_stream stream);
/* Frees what gpumem_torch_alloc answered; NULL: nothing. A failure is said on standard error, once for each
   status: PyTorch has no other way to learn of it. */
void gpumem_torch_free(void* pointer, size_t size, int device, gpumem_stream stream) GPUMEM_NOEXCEPT;

/* PyTorch: for CUDAPluggableAllocator's set_record_stream_fn. gpumem_record_stream, of a block of the
   process's own allocators; other memory, or NULL: nothing. Throws  as gpumem_torch_alloc. */
void gpumem_torch_record_stream(void* pointer, gpumem_stream stream);
/* PyTorch: for set_reset_fn, which torch.cuda.empty_cache calls. gpumem_allocator_trim of the process's own
   allocators. A failure is said on standard error, once for each status. */
void gpumem_torch_reset(void) GPUMEM_NOEXCEPT;
/* PyTorch: for set_begin_allocate_to_pool. Always throws, as gpumem_torch_alloc: this library keeps no memory
   apart for a captured graph. `pool_first`, `pool_second`: the pool's std::pair, which C++ passes in two
   registers. `filter`: the std::function, which it passes by its address. */
void gpumem_torch_begin_allocate_to_pool(int device, uint64_t pool_first, uint64_t pool_second,
                                         const void* filter);

/* CuPy: what `param` of the two functions below points at: an allocator, and the stream in whose order its
   blocks come and go. The functions call `retain` with `owner` for each block that they answer, and `release`
   when they have freed it, so that the owner keeps this struct, the allocator and the stream; all three
   members may be NULL. */
typedef struct gpumem_cupy_stream {
  size_t struct_size;
  gpumem_allocator* allocator;
  gpumem_stream stream;
  void* owner;
  gpumem_release retain;
  gpumem_release release;
} gpumem_cupy_stream;
#define GPUMEM_CUPY_STREAM_INIT \
  { sizeof(gpumem_cupy_stream), NULL, NULL, NULL, NULL, NULL }

/* CuPy: for cupy.cuda.CFunctionAllocator(param, malloc_function, free_function, owner). CuPy holds Python's
   lock meanwhile, so this never waits for memory or the device: it answers a block that is free now. NULL:
   there is none, zero bytes, `device` is not the allocator's ordinal, or an error. Then the caller asks by
   gpumem_allocate, which grows and says why it cannot. */
void* gpumem_cupy_malloc(void* param, size_t size, int device) GPUMEM_NOEXCEPT;
/* Frees what gpumem_cupy_malloc answered; NULL: nothing, as where the allocator is closed or a parent
   process's. Other failures are said on standard error, once for each status. */
void gpumem_cupy_free(void* param, void* pointer, int device) GPUMEM_NOEXCEPT;

/* For the Python package: its functions for DLPack, and those of Python that they are called between:
   PyErr_Fetch, PyErr_Restore, PyGILState_Ensure, PyGILState_Release. */
typedef struct gpumem_dlpack_calls {
  void* fetch;
  void* restore;
  void* ensure;
  void* release;
  gpumem_release drop; /* of a capsule */
  gpumem_release free; /* of what it names */
} gpumem_dlpack_calls;
/* `calls` stay there until the next call; NULL: from now on the two functions below do nothing. */
void gpumem_dlpack_configure(const gpumem_dlpack_calls* calls) GPUMEM_NOEXCEPT;
/* A capsule's destructor, and the deleter of what it names: each calls the function of its name. An exception
   of Python's that is under way goes on afterwards. */
void gpumem_dlpack_drop(void* capsule) GPUMEM_NOEXCEPT;
void gpumem_dlpack_free(void* managed) GPUMEM_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif
#undef GPUMEM_NOEXCEPT

#endif /* GPUMEM_H */
