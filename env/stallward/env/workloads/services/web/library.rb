# A web service in Ruby: a library of books in memory, of which a request gets some as JSON. Its
# memory is many small objects, which Ruby's collector marks one by one.
#
# usage: ruby library.rb SOCKET BOOKS SEED
require 'json'
require 'socket'

socket, books, seed = ARGV
random = Random.new(Integer(seed))
letters = ('a'..'z').to_a
pool = Array.new(65_536) { letters[random.rand(26)] }.join

Book = Struct.new(:id, :title, :text, :price, :words)
LIBRARY = Array.new(Integer(books)) do |number|
  at = number * 7 % (pool.size - 500)
  words = Array.new(4) { |index| pool[at + 9 * index, 8] }
  # A piece of a string that is kept would share its memory.
  Book.new(number, "Book #{number}", +pool[at, 400] << ' ', random.rand(10_000), words)
end

def answer(line)
  wanted = line[%r{\AGET /([\d,]+) }, 1].to_s.split(',').map(&:to_i)
  found = wanted.map { |number| LIBRARY[number] }
  return ['404 Not Found', { books: [] }] if found.empty? || found.any?(&:nil?)

  ['200 OK', { books: found.map(&:to_h), total: found.sum(&:price) }]
end

def serve(connection)
  while (line = connection.gets)
    nil until ["\r\n", nil].include?(connection.gets)
    status, content = answer(line)
    # The last key is always the same text: a client knows by it that all has come.
    body = "#{JSON.generate(content.merge(that_was_all: true))}\n"
    connection.write("HTTP/1.1 #{status}\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}")
  end
rescue SystemCallError
  nil # the client has gone
ensure
  connection.close
end

server = UNIXServer.new("#{socket}.early")
# Under its name only once it answers.
File.rename("#{socket}.early", socket)
loop { Thread.new(server.accept) { |connection| serve(connection) } }
