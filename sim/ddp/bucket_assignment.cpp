#include "sim/ddp/bucket_assignment.h"
