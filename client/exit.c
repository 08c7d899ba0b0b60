#include "client/command.h"

#include "common/error.h"

int command_exit(int status)
{
    switch ((enum gems_status)status) {
    case GEMS_OK:
        return EXIT_OK;
    case GEMS_E_INVALID:
    case GEMS_E_UNSUPPORTED:
    case GEMS_E_DATA:
        return EXIT_USAGE;
    case GEMS_E_NOTFOUND:
        return EXIT_NOT_FOUND;
    case GEMS_E_DENIED:
        return EXIT_DENIED;
    case GEMS_E_STATE:
        return EXIT_CONFLICT;
    case GEMS_E_PEER:
        return EXIT_UNREACHABLE;
    case GEMS_E_NOFIT:
        return EXIT_NO_FIT;
    case GEMS_E_TIMEOUT:
        return EXIT_TIMEOUT;
    case GEMS_E_CANCELLED:
        return EXIT_INTERRUPTED;
    default:
        return EXIT_FAILED;
    }
}
