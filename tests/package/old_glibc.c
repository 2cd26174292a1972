/* Everything of libgpumem that needs no driver, and the drop-in driver, which says that there is none. The
   first argument is the folder of the broker's sockets. */
#include <dlfcn.h>
#include <gpumem.h>
#include <stdio.h>

static bool count(const gpumem_usage* usage, void* context) {
  *(int*)context += usage->pool > 0;
  return true;
}

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, gpumem_last_error());
  return 1;
}

/* The call named `name` of `library`, without a driver; `first` is its only argument. */
static bool answers(const char* library, const char* name, int expected) {
  void* const opened = dlopen(library, RTLD_NOW);
  int (*call)(unsigned) = NULL;
  if (opened != NULL) *(void**)&call = dlsym(opened, name);
  if (call != NULL && call(0) == expected) return true;
  fprintf(stderr, "%s: %s: %s\n", library, name, call == NULL ? dlerror() : "not its answer");
  return false;
}

int main(int arguments, char** values) {
  gpumem_session_options options = GPUMEM_SESSION_OPTIONS_INIT;
  gpumem_session* session = NULL;
  gpumem_slice* slice = NULL;
  int devices = 0;
  if (arguments != 2) return 2;
  options.runtime_folder = "/nowhere";
  if (gpumem_session_connect(&options, &session) != GPUMEM_UNAVAILABLE) return failed("connect to nowhere");
  options.runtime_folder = values[1];
  options.timeout_ms = 60000;
  if (gpumem_session_connect(&options, &session) != GPUMEM_OK) return failed("connect");
  if (gpumem_session_ping(session) != GPUMEM_OK) return failed("ping");
  if (gpumem_session_usage(session, count, &devices) != GPUMEM_OK || devices != 1) return failed("usage");
  if (gpumem_slice_open(session, NULL, &slice) == GPUMEM_OK) return failed("a slice without a driver");
  if (!answers("libcuda.so.1", "cuInit", 100)) return 1;          /* CUDA_ERROR_NO_DEVICE */
  if (!answers("libnvidia-ml.so.1", "nvmlInit_v2", 12)) return 1; /* NVML_ERROR_LIBRARY_NOT_FOUND */
  if (gpumem_session_close(session) != GPUMEM_OK) return failed("close");
  printf("libgpumem %s works here\n", gpumem_version());
  return 0;
}
