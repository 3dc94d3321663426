"""Vast's REST interface in front of the simulated market, and what its behaviour rests on.

Nothing here was checked against the live service. Where each behaviour comes from, in the classes
of VAST_API: C the official client's source, R seen when that client ran, O Vast's OpenAPI and
guides, S Vast's own table of scopes, L told by third parties who saw it live, ? disputed or thin;
"guess" is ours. What is not listed is plain reading of O with C or R agreeing.

    route and key
    404 `auth_error` for an unknown key; 403 without one       O L; others say 401 (C)
    a key as `?api_key=`                                       O
    an instance key reaches its own instance alone             O
    a scope missing is 403 `not_authorized`                    O; the text is a guess
    a scope narrowed by constraints is refused                 guess; O has it, it is not modelled
    a route we lack is 404 `not_found`, whatever the method    guess, in the form of O
    thresholds and 12 s of penalty after a create              O; how it is counted is a guess
    three bodies of a 429, no Retry-After unless ordered       O
    searching
    64 rows whatever the limit                                 L ?
    a filter on `id` finds nothing                             L
    `verified`, `rentable`, `rented` default on /bundles/ only O; not on /search/asks/: L
    unknown columns filter nothing                             guess
    `driver_version` compares as a number                      R for the request, else guess
    dph_total = dph_base + storage_cost * GB / 720             L
    a bid search shows min_bid as price and is_bid true        guess
    renting
    gone offer is a 400 that says 404/3603                     L; O says 404
    a bid below the floor leaves a stopped instance            L
    the 410 of a start that cannot happen does not occur       O has it
    no image and no template is refused                        guess
    env given as a string is ignored                           L
    bounds of env, label, onstart and bid                      O L ?
    a volume is 404 `no_such_volume`: there are none           O for the code
    template: scalars of the request win, env merges           O
    launch takes the first offer; none is 404                  O; the code `no_offers` is a guess
    reading
    25 rows a page, opaque tokens, `id` breaks ties            O
    computed columns cannot be filtered                        O; which are computed: guess
    v0 list is 410                                             L
    an unknown id reads as null                                L; 404 is claimed too
    ports {} while down, HostPort text, address with newline   O L
    managing
    busy GPUs: 200, `success` false, the start stays queued    O; whether it stays queued: ?
    reboot, recycle and update need a running container        guess
    `id` repeated in the body of an update is ignored          guess; ?
    null bid takes the lowest that wins                        O
    a destroyed id stays listed for a while                    L; for how long: guess
    logs and execute are there at once                         guess; live they take seconds (C)
    account and money
    an empty list of SSH keys is 404                           O
    account keys reach later instances only                    C; O says all
    `created_at` of a key is ISO text                          O
    variables are masked with eight stars                      L ?
    the texts of the answers about keys and variables          R: the recording server's words
    `users/current` holds the key it was asked with            C
    a key is shown in part after it was made                   O says once; what is left is a guess
    charges by day, `amount` of the meter                      O; rounding: guess
    old invoices: amounts as text                              C
    a deposit of 0, no price rises                             O for the form; values are the market's
    templates by the hash of their content                     O; how it is computed: guess

Not modelled, so a 404: bulk create, copies between machines and to clouds, volumes, prepayment,
snapshots, scheduled jobs, reports, backups, audit log, subaccounts, transfers, two factors, teams,
serverless endpoints, and everything for hosts.
"""
