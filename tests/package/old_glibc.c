/* Everything of libgpumem that needs no driver. The first argument is the folder of the broker's sockets. */
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
  if (gpumem_session_close(session) != GPUMEM_OK) return failed("close");
  printf("libgpumem %s works here\n", gpumem_version());
  return 0;
}
