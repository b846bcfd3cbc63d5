/* A plugin with nothing but its entry and its manifest; the test puts a long text for LONG. */
#include "cascadia_plugin.h"
static uint32_t init(const cascadia_host_v1 *host, cascadia_err_out err) { (void)host; (void)err; return 0; }
static const void *get_extension(cascadia_str id) { (void)id; return NULL; }
CASCADIA_ENTRY(init, get_extension);
CASCADIA_MANIFEST("probe-c", "1.2.3", CASCADIA_JSON({"engines": [{"name": "a", "description": "it's \"b\""}], "x": true, "long": "LONG"}));
