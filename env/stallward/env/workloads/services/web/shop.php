<?php
// A shop whose articles are in the memory that all workers of PHP share (APCu).
// ?fill=FIRST&count=N stores articles and says how many there are. ?ids=NUMBER-NUMBER-... gives a
// page with some of them.
declare(strict_types=1);

header('Content-Type: text/plain');
if (isset($_GET['fill'])) {
    $first = (int) $_GET['fill'];
    for ($id = $first; $id < $first + (int) $_GET['count']; $id++) {
        $parts = [];
        for ($part = 0; $part < 12; $part++) {
            $parts["part-$part"] = hash('sha256', "$id/$part");
        }
        $price = crc32("$id") % 10000;
        $article = ['id' => $id, 'name' => "Article $id", 'price' => $price, 'parts' => $parts];
        apcu_store("article-$id", $article);
    }
    exit(apcu_cache_info(true)['num_entries'] . "\n");
}
$total = 0;
foreach (explode('-', $_GET['ids'] ?? '') as $id) {
    $article = apcu_fetch("article-" . (int) $id);
    if ($article === false) {
        http_response_code(404);
        exit("no article $id\nthat was all\n");
    }
    $total += $article['price'];
    $name = htmlspecialchars($article['name']);
    echo $article['id'], ' ', $name, ' ', implode(' ', $article['parts']), "\n";
}
echo "total $total\nthat was all\n";
