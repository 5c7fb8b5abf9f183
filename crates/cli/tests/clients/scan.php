<?php
// Scans a Terrace server with php-redis: scan.php PORT PASSWORD. Exits at the first wrong reply.

const KEYS = 2000;

$client = new Redis();
$client->connect('127.0.0.1', (int) $argv[1]);
$client->auth($argv[2]);
$client->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$client->flushAll();
for ($n = 0; $n < KEYS; $n++) {
    $client->set("php:$n", $n);
}

$cursor = null;
$seen = [];
for ($calls = 0; ($keys = $client->scan($cursor, 'php:*', 10)) !== false; $calls++) {
    if ($calls > KEYS) {
        exit("the scan does not end\n");
    }
    foreach ($keys as $key) {
        $seen[$key] = ($seen[$key] ?? 0) + 1;
    }
}
if (count($seen) !== KEYS || max($seen) !== 1) {
    exit(count($seen) . ' keys, one of them ' . max($seen) . " times\n");
}
echo "php-redis passed\n";
